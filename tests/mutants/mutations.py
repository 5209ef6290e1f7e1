"""Bugs to seed: each is one exact replacement in one source file, and the tests that notice it.

A mutant that survives means that a promise has no test. One that no longer applies means that the
source has moved: seed the same bug in its new place.
"""

from __future__ import annotations

from typing import NamedTuple

FSIO = "stores/_fsio.py"
LOCK = "stores/_lock.py"
FILE = "stores/file.py"
READING = "stores/_reading.py"
REWRITE = "stores/_rewrite.py"
LINE = "_core/line.py"
SCAN = "_core/scan.py"
TAIL = "_core/tail.py"
CODEC = "_core/codec.py"
CHECKPOINTER = "checkpointer.py"
SHARED_WRITE = "_shared_write.py"

CUT = "tests/crash/test_cut.py::"
FLIP = "tests/crash/test_flip.py::"
NULS = "tests/crash/test_nuls.py::"
FAULTS = "tests/crash/test_faults.py::"
DISK = "tests/crash/test_simulated_disk.py::"
WRITERS = "tests/concurrency/test_writers.py::"
THREADS = "tests/concurrency/test_threads.py::"
FORK = "tests/concurrency/test_fork.py::"
INPUT = "tests/unit/test_bad_input.py::"
FILES = "tests/unit/test_bad_files.py::"
TOUCHED = "tests/unit/test_touched_logs.py::"
VALUES = "tests/unit/test_values.py::"
RECOVER = "tests/unit/test_recover.py::"
HERE = "tests/mutants/killers.py::"


class Mutant(NamedTuple):
    """A bug: *old* becomes *new* in *file*; *killers* are tests, one of which has to fail."""

    name: str
    file: str
    old: str
    new: str
    killers: tuple[str, ...]


MUTANTS = [
    # -- durable when it returns -----------------------------------------------------------
    Mutant(
        "no sync of the record",
        FILE,
        "            if durable:\n                _fsio.sync(held.fd)\n"
        "        except BaseException",
        "        except BaseException",
        (THREADS + "test_a_save_returns_only_when_its_own_bytes_are_synced",),
    ),
    Mutant(
        "a shared write is acknowledged before it is synced",
        CHECKPOINTER,
        "durable=self._durable)",
        "durable=self._durable and len(items) == 1)",
        (THREADS + "test_a_save_returns_only_when_its_own_bytes_are_synced",),
    ),
    Mutant(
        "no sync of what a dead process left",
        FILE,
        "            _fsio.sync(held.fd)\n            _fsio.sync_names(self.path)",
        "            _fsio.sync_names(self.path)",
        (HERE + "test_what_a_dead_process_left_is_synced_before_the_next_record_is_written",),
    ),
    Mutant(
        "no sync of the folder of a new log",
        FSIO,
        "    sync_folder(folder)\n    sync_name(folder)",
        "    sync_name(folder)",
        (HERE + "test_the_name_of_a_new_log_is_synced_before_the_save_returns",),
    ),
    Mutant(
        "no sync of the folder above one that was made",
        FSIO,
        "        sync_folder(os.path.dirname(made))",
        "",
        (HERE + "test_the_name_of_each_new_folder_is_synced_before_the_save_returns",),
    ),
    Mutant(
        "no sync of the folder above, made by a process that died",
        FSIO,
        "        sync_folder(os.path.dirname(folder))",
        "        pass",
        (HERE + "test_the_name_of_a_folder_that_was_there_is_synced_before_the_save_returns",),
    ),
    Mutant(
        "no sync of a recovered log before it gets its name",
        REWRITE,
        "        _fsio.sync(new.fd)\n",
        "",
        (HERE + "test_a_recovered_log_is_synced_before_it_gets_its_name",),
    ),
    Mutant(
        "a failed sync is tried again, and the second one believed",
        FSIO,
        "        os.fdatasync(fd)",
        "        for _ in range(2):\n"
        "            try:\n                return os.fdatasync(fd)\n"
        "            except OSError:\n                pass",
        (THREADS + "test_a_sync_that_fails_is_an_unknown_outcome",),
    ),
    Mutant(
        "a failed sync does not poison the handle",
        FILE,
        "            self._poisoned = True\n            if written",
        "            if written",
        (FAULTS + "test_after_a_failed_sync_the_next_one_is_not_believed",),
    ),
    Mutant(
        "after a failed sync the outcome is said to be known",
        FILE,
        "            if is_cut and not written:",
        "            if is_cut:",
        (THREADS + "test_a_sync_that_fails_is_an_unknown_outcome",),
    ),
    # -- half a line -----------------------------------------------------------------------
    Mutant(
        "a short write is taken for a whole one",
        FSIO,
        "    if written == len(data):\n        return",
        "    return",
        (FAULTS + "test_a_short_write_is_carried_on",),
    ),
    Mutant(
        "half a line stays after a write that failed",
        FILE,
        "is_cut = self._cut_back(held, end, durable=durable)",
        "is_cut = True",
        (FAULTS + "test_half_a_line_is_cut_off_before_the_error_is_raised",),
    ),
    Mutant(
        "an append behind a torn tail does not repair it first",
        FILE,
        "            size = view.end\n            _fsio.truncate(held.fd, size)",
        "            pass",
        (NULS + "test_several_torn_records_of_one_shared_sync_are_all_dropped",),
    ),
    Mutant(
        "an append behind a record without newline does not add it",
        FILE,
        '            _fsio.write_all(held.fd, b"\\n")\n            held.end = size + 1',
        "            pass",
        (HERE + "test_a_record_without_its_newline_is_kept_and_gets_it",),
    ),
    # -- torn or damaged -------------------------------------------------------------------
    Mutant(
        "whole lines are searched by newlines, and not by lengths",
        LINE,
        "        start = found.start() - int(found[3])\n"
        "        if start < 0 or _is_inside_another(buf, start, found.end()):",
        '        start = buf.rfind(b"\\n", 0, found.start()) + 1\n'
        "        if start < 0 or _is_inside_another(buf, start, found.end()):",
        (HERE + "test_salvage_keeps_both_records_around_a_damaged_newline",),
    ),
    Mutant(
        "the length in the sum is not compared",
        LINE,
        "    if int(found[3]) != key - start:\n        return None\n",
        "",
        (FLIP + "test_a_sum_that_tells_another_length_than_the_line_has_is_noticed",),
    ),
    Mutant(
        "the crc in the sum is not compared",
        LINE,
        "    if crc32(memoryview(buf)[start : found.start(5)]) != int(found[5], 16):\n"
        "        return None\n",
        "",
        (FLIP + "test_a_flipped_bit_in_a_log_of_one_record_is_noticed_and_drops_nothing",),
    ),
    Mutant(
        "a line links to nothing",
        LINE,
        "len(foot), link)",
        "len(foot), START)",
        (HERE + "test_records_are_read_back",),
    ),
    Mutant(
        "the link is not compared when a log is read",
        SCAN,
        "        if seal.link != self.mark:",
        "        if False:",
        (FLIP + "test_a_dropped_line_is_noticed",),
    ),
    Mutant(
        "the link is not compared at the end of a log",
        TAIL,
        " or mark_before(buf, seal.start - 1) != seal.link:",
        ":",
        (FLIP + "test_the_end_of_a_log_is_enough_to_notice_what_stands_there",),
    ),
    Mutant(
        "lines are split as str.splitlines() does it",
        SCAN,
        '        lines = chunk.split(b"\\n")',
        '        lines = (chunk.decode("utf-8", "replace") + "\\n").splitlines()\n'
        "        lines = [line.encode() for line in lines]",
        (HERE + "test_what_str_splitlines_takes_for_an_end_of_a_line_is_none",),
    ),
    Mutant(
        "a byte that was flipped to NUL makes an acknowledged record torn",
        SCAN,
        "    if count != 1:\n        return count > 1",
        "    if count != 1 or True:\n        return count > 0",
        (FLIP + "test_a_flipped_bit_is_noticed_and_drops_nothing",),
    ),
    Mutant(
        "NULs at the end of a log are damage",
        SCAN,
        "    if count != 1:\n        return count > 1",
        "    if count != 1:\n        return False",
        (HERE + "test_sectors_that_never_reached_the_disk_are_a_torn_tail",),
    ),
    Mutant(
        "a record in the state of a record is taken for one of the log",
        LINE,
        "        if start < 0 or _is_inside_another(buf, start, found.end()):",
        "        if start < 0:",
        (NULS + "test_a_torn_record_whose_state_holds_records_is_torn_wherever_its_nuls_end",),
    ),
    # -- one writer ------------------------------------------------------------------------
    Mutant(
        "lockf in the place of flock",
        LOCK,
        "fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        (WRITERS + "test_other_opens_and_closes_of_the_file_do_not_lose_the_lock",),
    ),
    Mutant(
        "no lock at all",
        LOCK,
        "            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "            pass",
        (WRITERS + "test_the_second_process_is_refused_before_it_writes",),
    ),
    Mutant(
        "no comparison of the file with its path after locking",
        LOCK,
        "            if _fsio.identity_at(path) != held.identity:",
        "            if False:",
        (WRITERS + "test_a_process_that_waits_for_a_file_that_is_replaced_gets_the_new_one",),
    ),
    Mutant(
        "no comparison of the file with its path before a write",
        FILE,
        "_fsio.at(self.path) != (held.identity, held.end)",
        "_fsio.size(held.fd) != held.end",
        (WRITERS + "test_no_save_is_acknowledged_into_a_file_that_is_not_at_the_path",),
    ),
    Mutant(
        "records of a program that asks for no lock are not noticed",
        FILE,
        "_fsio.at(self.path) != (held.identity, held.end)",
        "_fsio.identity_at(self.path) != held.identity",
        (TOUCHED + "test_records_of_a_program_that_asks_for_no_lock_are_not_written_over",),
    ),
    Mutant(
        "no fence: whoever has the lock may append",
        FILE,
        "            raise ConflictError(self.path, seen.seq, now.seq)",
        "            return now",
        (WRITERS + "test_a_log_that_has_grown_is_not_appended_to",),
    ),
    Mutant(
        "the end of one handle unlocks the others of its process",
        LOCK,
        "    if not held.users - {user}:",
        "    if True:",
        (WRITERS + "test_the_end_of_the_old_handle_does_not_unlock_the_new_one",),
    ),
    Mutant(
        "a closed handle keeps the lock",
        LOCK,
        "    if not held.users - {user}:",
        "    if False:",
        (WRITERS + "test_a_run_is_free_once_its_writer_has_ended",),
    ),
    # -- fork ------------------------------------------------------------------------------
    Mutant(
        "a forked child may write",
        FILE,
        "        if pid != self._pid:",
        "        if False:",
        (FORK + "test_a_child_of_a_child_cannot_write_either",),
    ),
    Mutant(
        "a forked child unlocks",
        LOCK,
        "    for held in list(_held.values()):\n        disown(held)",
        "    for held in list(_held.values()):\n        _unlock(held.fd)",
        (FORK + "test_what_a_child_does_never_unlocks_for_its_parent",),
    ),
    Mutant(
        "a forked child keeps its copy of the descriptor",
        LOCK,
        "    for held in list(_held.values()):\n        disown(held)",
        "    for held in _held.values():\n        held.is_locked = False",
        (FORK + "test_a_child_that_outlives_its_killed_parent_does_not_keep_the_run_locked",),
    ),
    Mutant(
        "a fork between the open and the lock is not noticed",
        LOCK,
        "    return begun != ended or (begun, ended) != forks",
        "    return False",
        (FORK + "test_a_child_that_outlives_its_killed_parent_does_not_keep_the_run_locked",),
    ),
    # -- threads ---------------------------------------------------------------------------
    Mutant(
        "threads share the instance of an error",
        CHECKPOINTER,
        "item.error = item.error or _copy_of(error)",
        "item.error = item.error or error",
        (THREADS + "test_each_thread_raises_an_error_of_its_own",),
    ),
    Mutant(
        "an interrupt loses the saves of the threads that wait",
        SHARED_WRITE,
        "                        commit(self._taken(queue, item))",
        "                        taken = self._taken(queue, item)\n"
        "                        try:\n                            commit(taken)\n"
        "                        except BaseException:\n"
        "                            for lost in taken:\n"
        "                                lost.done = True\n"
        "                            raise",
        (THREADS + "test_an_interrupt_in_the_thread_that_writes_hurts_no_save_of_another_thread",),
    ),
    # -- bad input -------------------------------------------------------------------------
    Mutant(
        "a tuple is taken, and comes back as a list",
        CODEC,
        "_LEAVES = frozenset((str, int, ",
        "_LEAVES = frozenset((tuple, str, int, ",
        (HERE + "test_a_tuple_is_refused",),
    ),
    Mutant(
        "a link is followed",
        FSIO,
        '    | getattr(os, "O_NOFOLLOW", 0)\n',
        "",
        (HERE + "test_a_link_that_takes_the_place_of_the_log_is_not_followed",),
    ),
    Mutant(
        "what stands at the path is not looked at",
        READING,
        '        if kind not in ("file", "nothing"):',
        "        if False:",
        (INPUT + "test_a_path_that_is_no_regular_file_is_refused_at_once",),
    ),
    Mutant(
        "a FIFO hangs the open",
        FSIO,
        "    if stat.S_ISREG(mode):",
        "    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):",
        (INPUT + "test_a_path_that_is_no_regular_file_is_refused_at_once",),
    ),
    Mutant(
        "a newer format is damage",
        LINE,
        "    if found is None or version <= VERSION:\n        return 0",
        "    return 0",
        (HERE + "test_a_newer_format_is_refused",),
    ),
]
