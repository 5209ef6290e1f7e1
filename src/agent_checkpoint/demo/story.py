"""The script: what the model says on each turn, which tool it asks for, and what the tool returns.

The first line of what it says is its headline, the part that the stage shows. Each tool call
occurs once, so that its text alone decides its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Message = dict[str, str]

TASK = (
    "Two customers were charged twice in the night of 25 October."
    " Find out why, prove it with a test, and fix it."
)


class Step(NamedTuple):
    """One turn: the model's words, the tool it calls (none at the end), and the tool's answer."""

    says: str
    tool: str
    result: str


STORY: Sequence[Step] = (
    Step(
        "I begin with the complaint itself.\nTwo charges for one invoice have a first and a second"
        " moment, and I want both.",
        "read ticket-2214",
        "Invoices 7719 and 7731 were each charged twice, the same amount both times.\n"
        "First charge 02:34, second charge 02:31, same night, same card.\n"
        "The other 412 invoices of that night were charged once.",
    ),
    Step(
        "02:34 first and 02:31 second? Backwards.\nEither the ticket has them swapped, or the log"
        " has. I look at what our side wrote.",
        "grep charges.log",
        "charges.log:1071: 2026-10-25 02:34:08 charged 7719 49.00 EUR\n"
        "charges.log:1072: 2026-10-25 02:34:09 charged 7731 18.50 EUR\n"
        "charges.log:1090: 2026-10-25 02:31:02 charged 7719 49.00 EUR\n"
        "charges.log:1091: 2026-10-25 02:31:02 charged 7731 18.50 EUR",
    ),
    Step(
        "Not swapped: our log goes back in time.\nIt has no time zone in it. The bank writes UTC,"
        " so I ask the bank.",
        "read bank.csv",
        "charge,invoice,amount,created\n"
        "ch_88121,7719,49.00,2026-10-25T00:34:08Z\n"
        "ch_88122,7731,18.50,2026-10-25T00:34:09Z\n"
        "ch_88139,7719,49.00,2026-10-25T01:31:02Z\n"
        "ch_88140,7731,18.50,2026-10-25T01:31:02Z",
    ),
    Step(
        "In UTC the two are 57 minutes apart.\n57 minutes that our clock shows as minus three: an"
        " hour has gone missing in between.",
        "zdump Berlin",
        "Europe/Berlin  Sun Oct 25 00:59:59 2026 UT = 02:59:59 CEST isdst=1\n"
        "Europe/Berlin  Sun Oct 25 01:00:00 2026 UT = 02:00:00 CET  isdst=0",
    ),
    Step(
        "The clocks went back. 02:30 came twice.\nIf the billing job goes by local time, it ran"
        " twice that night, as it was told to.",
        "read schedule.py",
        "def install(scheduler):\n"
        "    # after the backups, before anybody is awake\n"
        '    scheduler.daily(at="02:30", job=run_billing)',
    ),
    Step(
        "And the job goes by local time. Did it run?\nThe scheduler keeps a log of its own, with"
        " the offset from UTC.",
        "grep scheduler.log",
        "02:30:00+0200 run_billing started, 414 invoices open\n"
        "02:30:00+0100 run_billing started, 2 invoices open\n"
        "02:31:03+0100 run_billing ended, 2 invoices charged",
    ),
    Step(
        "Twice. But 412 of 414 came to no harm.\nSo something protects them, and it did not"
        " protect these two. I read the charging itself.",
        "read charge.py",
        "def charge(invoice, run, bank, store):\n"
        "    if store.is_paid(invoice.id):\n"
        "        return\n"
        '    key = f"{invoice.id}-{run.started_at.isoformat()}"\n'
        "    with_retries(lambda: bank.charge(invoice.amount, idempotency_key=key))\n"
        "    store.mark_paid(invoice.id)",
    ),
    Step(
        "is_paid() is the guard. For two it said no.\nI have three suspects: a cache in front of"
        " it, the retries, a second worker. First the cache.",
        "grep lru_cache",
        "(no matches in 23 files)",
    ),
    Step(
        "No cache anywhere. Suspect two: retries.\nA retry after a timeout could charge again, if"
        " it were to make a new key each time.",
        "read retry.py",
        "def with_retries(call, attempts=4):\n"
        "    for attempt in range(attempts):\n"
        "        try:\n"
        "            return call()\n"
        "        except Timeout:\n"
        "            sleep(2 ** attempt)\n"
        '    raise GaveUp(f"{attempts} attempts, all timed out")',
    ),
    Step(
        "The key is made once, outside the retries.\nThe bank knows it then and returns the first"
        " charge. I had better try that than believe it.",
        "run retry_twice.py",
        "attempt 1: timed out after the bank had charged\n"
        "attempt 2: same key, bank returned ch_1\n"
        "charges at the bank: 1",
    ),
    Step(
        "Retries are innocent. Suspect three: workers.\nTwo workers could both find an invoice"
        " unpaid and both go ahead.",
        "read deploy.yaml",
        "worker:\n  replicas: 1\n  command: python -m billing.worker\n  grace_seconds: 10",
    ),
    Step(
        "One worker. That was my last suspect.\nThe scheduler's log nags me: the first run has a"
        " start and no end. A run that ends says so.",
        "grep 'ended'",
        "02:31:14+0200 (24 Oct) run_billing ended, 398 invoices charged\n"
        "02:31:03+0100 (25 Oct) run_billing ended, 2 invoices charged",
    ),
    Step(
        "The first run of the 25th never ended.\nSomething stopped it before it could say so. What"
        " else happened on that machine at 02:34?",
        "grep worker.log",
        "02:34:00+0200 worker: SIGTERM, finishing within 10 s\n"
        "02:34:10+0200 worker: SIGKILL\n"
        "02:34:19+0200 worker: started, version 118",
    ),
    Step(
        "SIGKILL at 02:34:10, in the middle of a run.\nThe two charges came one and two seconds"
        " before it. Why two, and not one?",
        "read pool.py",
        "def run_billing(bank, store):\n"
        "    run = Run(started_at=utcnow())\n"
        "    with ThreadPoolExecutor(max_workers=2) as pool:\n"
        "        for invoice in store.open_invoices():\n"
        "            pool.submit(charge, invoice, run, bank, store)",
    ),
    Step(
        "Two threads: two charges were in flight.\nCharged at the bank, not yet marked as paid"
        " here. I check that the database agrees.",
        "sql paid_at",
        "invoice  paid_at (UTC)\n"
        "7718     2026-10-25 00:34:07\n"
        "7719     2026-10-25 01:31:03\n"
        "7731     2026-10-25 01:31:03\n"
        "7732     2026-10-25 00:34:07",
    ),
    Step(
        "Marked only by the second run. It fits.\nThe bank would still have refused the second"
        " charge, had it come with the same key.",
        "run show_keys.py",
        "first run:   7719-2026-10-25T00:30:00+00:00\nsecond run:  7719-2026-10-25T01:30:00+00:00",
    ),
    Step(
        "The key holds the run, so each run is new.\nThat is the bug. The clocks and the deploy"
        " only met it. Somebody may have wanted it so, though.",
        "blame charge.py",
        'commit 5c1e0d7: "Key per run, so that a declined card can be charged again the next'
        ' day. Before, the bank kept returning the old refusal."',
    ),
    Step(
        "A good reason. My fix has to keep it.\nSo: the same key until the bank has answered, a"
        " new one after a refusal. First a test that fails.",
        "write test_kill.py",
        "def test_a_killed_run_charges_nobody_twice(bank, store):\n"
        "    with killed_after(bank.charge):\n"
        "        run_billing(bank, store)\n\n"
        "    run_billing(bank, store)\n\n"
        "    assert bank.charges_of(7719) == 1",
    ),
    Step(
        "It should fail today, and as the bank saw it.\nA test that has never failed proves"
        " nothing.",
        "pytest (old code)",
        "FAILED test_kill.py::test_a_killed_run_charges_nobody_twice\n"
        "    assert 2 == 1\n"
        "1 failed in 0.41s",
    ),
    Step(
        "Two charges instead of one: the bug, caught.\nNow the key: the invoice and the number of"
        " refusals so far, and nothing about the run.",
        "edit charge.py",
        '-    key = f"{invoice.id}-{run.started_at.isoformat()}"\n'
        '+    key = f"{invoice.id}-{store.refusals(invoice.id)}"',
    ),
    Step(
        "One line. Does it hold?\nThe declined card is in the suite already, as"
        " test_a_declined_card_is_charged_the_next_day.",
        "pytest (new key)",
        "test_kill.py .\ntest_charge.py ........\n9 passed in 0.63s",
    ),
    Step(
        "Green, both the new test and the old reason.\nBut I killed it at one place only. A"
        " machine chooses the place for itself.",
        "edit test_kill.py",
        "-    with killed_after(bank.charge):\n"
        '+@pytest.mark.parametrize("point", EVERY_POINT)\n'
        "+    with killed_at(point):",
    ),
    Step(
        "Now it is killed before and after each step.\nFive places: look up, make the key,"
        " charge, mark as paid, return.",
        "pytest (5 places)",
        "test_kill.py ...F.\n"
        "FAILED test_kill.py::test_a_killed_run_charges_nobody_twice[mark_paid]\n"
        "    invoice 7719 has paid=1 and no paid_at\n"
        "1 failed, 4 passed in 0.88s",
    ),
    Step(
        "Four of five. mark_paid() has its own gap.\nNobody was charged twice there, but the"
        " books would have been wrong.",
        "read store.py",
        "def mark_paid(self, invoice_id):\n"
        '    self.db.execute("UPDATE invoice SET paid=1 WHERE id=?", (invoice_id,))\n'
        '    self.db.execute("UPDATE invoice SET paid_at=? WHERE id=?", (now(), invoice_id))',
    ),
    Step(
        "Two statements, each on its own. Make it one.\nOne UPDATE is either there or not there.",
        "edit store.py",
        "+    self.db.execute(\n"
        '+        "UPDATE invoice SET paid=1, paid_at=? WHERE id=?", (now(), invoice_id))',
    ),
    Step(
        "Once more, at all five places.\nAnd the rest of the suite with it.",
        "pytest (all)",
        "62 passed in 3.10s",
    ),
    Step(
        "The job still runs twice a year, though.\nThat does no harm any more, but"
        " 02:30 UTC comes once a day, every day.",
        "edit schedule.py",
        '-    scheduler.daily(at="02:30", job=run_billing)\n'
        '+    scheduler.daily(at="02:30", zone="UTC", job=run_billing)',
    ),
    Step(
        "Did it hit others before? I ask for all years.\nSame job, same key, and the"
        " clocks go back every autumn.",
        "sql duplicates",
        "night       invoice  charges\n2026-10-25  7719     2\n2026-10-25  7731     2",
    ),
    Step(
        "Only these two. They get their money back.\nI prepare the refunds and leave the sending"
        " to a person.",
        "write refunds.csv",
        "charge,amount\nch_88139,49.00\nch_88140,18.50",
    ),
    Step(
        "Found and fixed. The money was paid twice\nbecause a killed process had not yet"
        " written down what it had already paid for, and the one after it could not know. The key"
        " now names the invoice and not the run, marking as paid is one statement, the job goes"
        " by UTC. The test kills the job at five places. Two refunds wait for a signature.",
        "",
        "",
    ),
)


def shortened(turns: int) -> Sequence[Step]:
    """Return the story in so many *turns*: its beginning, and its last turn."""
    return (*STORY[: turns - 1], STORY[-1])


def run_tool(call: str) -> Message:
    """Return the message with which the scripted tool answers *call*."""
    return {"role": "tool", "content": _RESULTS[call]}


def conversation(story: Sequence[Step]) -> list[Message]:
    """Return all messages of an agent that has gone through *story* and lost nothing."""
    messages: list[Message] = [{"role": "user", "content": TASK}]
    for step in story:
        messages.append({"role": "assistant", "content": step.says})
        if step.tool:
            messages[-1]["tool"] = step.tool
            messages.append(run_tool(step.tool))
    return messages


_RESULTS = {step.tool: step.result for step in STORY if step.tool}
