"""The protocol's official suite, run and read check by check.

    suite.py client COMMAND OUT SCENARIO...    plays these scenarios against a client; the URL comes as the command's last argument
    suite.py server REJOIN OUT REVISION        starts `rejoin serve` on 2 shards, and plays every server scenario of a revision against it

Prints a line "test result: ..." for each scenario, as libtest does. The suite's own exit code is not gone by: it says nothing of a warning,
and nothing of a scenario in which nothing was checked. What the suite itself gets wrong is a line of the file `expected-failures`; one that
passes all the same fails the run, so that no line outlives its reason.
"""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
EXPECTED = HERE / "expected-failures"
SHARDS = "2"
PATIENCE = 120  # Seconds for all the scenarios of a revision: they take about ten.
FINE = {"SUCCESS", "INFO"}


def expected_failures(text, revision):
    """The reasons of what is expected to fail in a revision, by scenario and check."""
    reasons = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        of, scenario, check, reason = line.split(maxsplit=3)
        if of == revision:
            reasons[scenario, check] = reason
    return reasons


def wrong(scenario, checks, expected):
    """What is wrong with the outcome of a scenario, as lines for people; none where all is well."""
    lines = []
    if not any(check["status"] != "INFO" for check in checks):
        lines.append("nothing was checked")
    failed = {check["id"] for check in checks if check["status"] not in FINE}
    for check in checks:
        if check["status"] not in FINE and (scenario, check["id"]) not in expected:
            lines.append(f"{check['id']}: {check['status']}: {check.get('errorMessage', check.get('description', ''))}")
    lines.extend(f"{check}: was expected to fail" for of, check in expected if of == scenario and check not in failed)
    return lines


def report(outcomes, expected):
    """Prints what became of each scenario; whether all is well. An expectation of a scenario that was not played is wrong too."""
    outcomes = outcomes | {scenario: [] for scenario, _ in expected if scenario not in outcomes}
    well = True
    for scenario, checks in sorted(outcomes.items()):
        lines = wrong(scenario, checks, expected)
        print(f"-- {scenario}: {len(checks)} checks", *lines, sep="\n   ")
        print("test result: FAILED. 0 passed; 1 failed;" if lines else "test result: ok. 1 passed; 0 failed;")
        well = well and not lines
    return well and bool(outcomes)


def read(out):
    """The checks in a folder of results, by scenario: its name is the folder's, without the suite's prefix and the time."""
    outcomes = {}
    for path in pathlib.Path(out).glob("**/checks.json"):
        name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", path.parent.name)
        outcomes[name.removeprefix("server-")] = json.loads(path.read_text())
    return outcomes


def suite(*arguments):
    """Runs the suite with the node beside it; what it prints."""
    bin = HERE / "node_modules/.bin"
    print(f"-- conformance {' '.join(arguments)}", flush=True)
    command = [bin / "node", (bin / "conformance").resolve(), *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False, text=True)
    return ran.stdout


def of_extensions(listed):
    """The scenarios of extensions, in the suite's own list: it plays them with a revision and scores them for nobody. A server that does
    not declare an extension has nothing of it."""
    return set(re.findall(r"^ *- (\S+) \[extension\]$", listed, re.MULTILINE))


def emptied(out):
    shutil.rmtree(out, ignore_errors=True)
    pathlib.Path(out).mkdir(parents=True)


def client(command, out, *scenarios):
    emptied(out)
    for scenario in scenarios:
        suite("client", "--command", command, "--scenario", scenario, "-o", f"{out}/{scenario}")
    return report({scenario: sum(read(f"{out}/{scenario}").values(), []) for scenario in scenarios}, {})


def server(rejoin, out, revision):
    emptied(out)
    with open(f"{out}/log", "w") as log:
        command = [rejoin, "serve", "--listen", "127.0.0.1:0", "--shards", SHARDS]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            try:
                url = process.stdout.readline().removeprefix("rejoin listening on ").strip()
                suite("server", "--url", url, "--requirements", revision, "-o", f"{out}/results")
            finally:
                process.send_signal(signal.SIGTERM)
    left_out = of_extensions(suite("list"))
    outcomes = {name: checks for name, checks in read(f"{out}/results").items() if name not in left_out}
    well = report(outcomes, expected_failures(EXPECTED.read_text(), revision))
    if process.returncode != 0 or " ERROR " in pathlib.Path(f"{out}/log").read_text():
        print(f"the server ended with {process.returncode}; its log is {out}/log")
        return False
    return well


if __name__ == "__main__":
    sys.exit(not {"client": client, "server": server}[sys.argv[1]](*sys.argv[2:]))
