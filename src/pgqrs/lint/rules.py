"""The rules: a code, what it is about, what to do instead; and the calls that each knows by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    code: str
    title: str
    # What to do instead.
    instead: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule."""

    path: str
    line: int
    column: int
    rule: Rule
    said: str

    @property
    def code(self) -> str:
        return self.rule.code

    @property
    def message(self) -> str:
        return f"{self.said}; {self.rule.instead}"


UNREADABLE = Rule("PGQ001", "not Python", "nothing else in this file was checked")
CLOCK = Rule("PGQ101", "wall clock", "use ctx.now(), which is on record")
CHANCE = Rule("PGQ102", "chance", "use ctx.random(), or draw in a step")
UUID = Rule("PGQ103", "new ids", "use ctx.uuid(), which is on record")
ENVIRONMENT = Rule("PGQ104", "environment", "read it in a step, or pass it as input")
OUTSIDE = Rule("PGQ105", "files, network, programs", "do it in a step: here it happens again on each replay")
THREADS = Rule("PGQ106", "threads and processes", "a plain step runs in a thread by itself; several: ctx.gather")
SLEEP = Rule("PGQ107", "sleeping in the process", "use ctx.sleep(), which holds nothing and survives a restart")
RACE = Rule(
    "PGQ108",
    "races",
    "use ctx.first(), which ends with its winner, for waits and the results of children, and ctx.gather() for steps: "
    "a step that loses runs to its end all the same",
)
GLOBAL = Rule("PGQ109", "global state", "keep it in the run: another worker's process does not have it")
QUEUE = Rule(
    "PGQ110",
    "queues between threads",
    "use ctx.gather() or ctx.map(..., limit=): threads take items in no order, so in a replay they get other items",
)
DEADLINE = Rule(
    "PGQ111",
    "deadlines in memory",
    "use ctx.wait_for(timeout=), ctx.first(..., ctx.sleep()) or ctx.step(timeout=): a replay cannot repeat it",
)
NOT_AWAITED = Rule("PGQ201", "a step that is not awaited", "await it, or give it to ctx.gather()")
UNORDERED = Rule("PGQ202", "steps in the order of a set", "loop over sorted(...): a set's order changes")
UNSTORABLE = Rule("PGQ203", "what cannot be stored", "return data: text, numbers, lists, dataclasses")
SWALLOWED = Rule("PGQ204", "suspension swallowed", "catch Exception, or raise again: a wait ends the pass by raising")
WAIT_IN_STEP = Rule(
    "PGQ205", "wait inside a step", "call it in the workflow body: a step has to end before a run waits"
)
CALLED = Rule(
    "PGQ206",
    "calls in place of functions",
    "pass functions, ctx.first(lambda: ..., lambda: ...): in a plain workflow the arguments run one after the other, "
    "before first() or gather() is called",
)

RULES = (
    UNREADABLE,
    CLOCK,
    CHANCE,
    UUID,
    ENVIRONMENT,
    OUTSIDE,
    THREADS,
    SLEEP,
    RACE,
    GLOBAL,
    QUEUE,
    DEADLINE,
    NOT_AWAITED,
    UNORDERED,
    UNSTORABLE,
    SWALLOWED,
    WAIT_IN_STEP,
    CALLED,
)

# What is called, by its full name; `.*` stands for all of a module.
CALLS: dict[str, Rule] = {
    **dict.fromkeys(
        (
            "time.time",
            "time.time_ns",
            "time.monotonic",
            "time.monotonic_ns",
            "time.perf_counter",
            "time.perf_counter_ns",
            "time.process_time",
            "time.localtime",
            "time.gmtime",
            "time.ctime",
            "datetime.datetime.now",
            "datetime.datetime.utcnow",
            "datetime.datetime.today",
            "datetime.date.today",
        ),
        CLOCK,
    ),
    **dict.fromkeys(("random.*", "secrets.*", "numpy.random.*", "os.urandom", "os.getrandom"), CHANCE),
    **dict.fromkeys(("uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7"), UUID),
    **dict.fromkeys(
        ("os.getenv", "os.getenvb", "os.getpid", "os.getcwd", "socket.gethostname", "platform.*", "getpass.*"),
        ENVIRONMENT,
    ),
    **dict.fromkeys(
        (
            "open",
            "input",
            "io.open",
            "os.system",
            "os.popen",
            "os.listdir",
            "os.scandir",
            "os.walk",
            "os.remove",
            "os.unlink",
            "os.rename",
            "os.mkdir",
            "os.makedirs",
            "glob.*",
            "shutil.*",
            "tempfile.*",
            "subprocess.*",
            "asyncio.create_subprocess_exec",
            "asyncio.create_subprocess_shell",
            "asyncio.open_connection",
            "socket.*",
            "urllib.request.*",
            "http.client.*",
            "requests.*",
            "httpx.*",
            "aiohttp.*",
            "aiofiles.*",
            "smtplib.*",
            "ftplib.*",
            "boto3.*",
            "sqlite3.connect",
            "psycopg.*",
            "asyncpg.*",
        ),
        OUTSIDE,
    ),
    **dict.fromkeys(
        (
            "threading.Thread",
            "threading.Timer",
            "multiprocessing.*",
            "concurrent.futures.ThreadPoolExecutor",
            "concurrent.futures.ProcessPoolExecutor",
            "asyncio.to_thread",
            "os.fork",
        ),
        THREADS,
    ),
    **dict.fromkeys(("asyncio.sleep", "time.sleep", "anyio.sleep", "trio.sleep"), SLEEP),
    "asyncio.as_completed": RACE,
    "queue.*": QUEUE,
    **dict.fromkeys(
        (
            "asyncio.timeout",
            "asyncio.timeout_at",
            "asyncio.wait_for",
            "anyio.fail_after",
            "anyio.move_on_after",
            "async_timeout.timeout",
        ),
        DEADLINE,
    ),
}
# With arguments they are the same each time.
FIXED_BY_ARGUMENTS = frozenset({"random.Random", "numpy.random.default_rng", "time.localtime", "time.gmtime"})
# What is looked at rather than called.
VALUES = {"os.environ": ENVIRONMENT, "os.environb": ENVIRONMENT, "sys.argv": ENVIRONMENT}
# Methods whose names say enough, whatever they are called on.
METHODS = {
    "read_text": OUTSIDE,
    "write_text": OUTSIDE,
    "read_bytes": OUTSIDE,
    "write_bytes": OUTSIDE,
    "run_in_executor": THREADS,
}
# Made by these, a value cannot be stored.
UNSTORABLE_CALLS = frozenset(
    {
        "open",
        "io.open",
        "iter",
        "map",
        "filter",
        "zip",
        "threading.Lock",
        "threading.RLock",
        "threading.Event",
        "asyncio.Lock",
        "asyncio.Event",
        "asyncio.Queue",
        "asyncio.create_task",
    }
)


def rule_for(name: str) -> Rule | None:
    """The rule that a call of this full name breaks."""
    found = CALLS.get(name)
    while found is None and "." in name:
        name = name.rpartition(".")[0]
        found = CALLS.get(f"{name}.*")
    return found
