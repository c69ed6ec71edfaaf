"""What the guide and the examples show, runs."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def test_the_first_program_of_the_guide_runs():
    text = (ROOT / "docs/guide/python.md").read_text()
    program = text.split("```python\n")[1].split("```")[0]
    assert run("-c", program) == "b'across a lossy link'\n"


def test_the_example_of_an_echo_runs():
    assert run(str(ROOT / "bindings/python/examples/echo.py")) == "across a lossy link\n"


def test_an_example_that_is_called_wrongly_says_how():
    for name in ("echo", "file", "chat"):
        done = subprocess.run(
            [sys.executable, str(ROOT / f"bindings/python/examples/{name}.py"), "nonsense"], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1 and f"python examples/{name}.py" in done.stderr, done


def test_everything_public_has_a_docstring():
    import inspect

    import noctule
    from noctule import blocking

    missing = []
    for module in (noctule, blocking):
        for name in module.__all__:
            thing = getattr(module, name)
            if not callable(thing):
                continue
            if not thing.__doc__:
                missing.append(name)
            if inspect.isclass(thing):
                members = {n for base in thing.__mro__ if base.__module__.startswith("noctule") for n in vars(base) if not n.startswith("_")}
                missing += [f"{name}.{n}" for n in members if callable(getattr(thing, n, None)) and not getattr(thing, n).__doc__]
    assert not missing, missing
