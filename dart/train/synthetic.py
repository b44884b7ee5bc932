"""Small, complete Python functions made from our own templates.

Knows `utilities.txt` (format: `== names`, `placeholder: choices`, `- summary`, then one or more
bodies) and how to vary names, arguments and forms. Does not know the wording of requests (see
`pairs.py`).
"""

from __future__ import annotations

import itertools
import random
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from dart.train.corpus import Function, identity, parses

UTILITIES = Path(__file__).with_name("utilities.txt")
PACKAGE = "synthetic"
HELD_OUT_EVERY = 30  # every 30th utility is held out whole, in all its forms
HELD_OUT_KEY = "00000000"  # an identity that `corpus.is_held_out` puts into the held-out split

COMMON_CHOICES = {
    "xs": ["numbers", "values", "nums", "data"],
    "items": ["items", "values", "elements", "sequence"],
    "s": ["text", "s", "string"],
    "n": ["n", "number", "num", "value"],
    "r": ["result", "output"],
    "t": ["total", "result"],
    "i": ["i", "index"],
    "d": ["mapping", "data", "table", "dictionary"],
    "x": ["x", "item", "element", "number"],
    "c": ["char", "c", "character", "letter"],
    "a": ["a", "first", "x"],
    "b": ["b", "second", "y"],
}
"""Names that a placeholder may take where a utility gives none of its own."""

PARTNERS = {"a": "b", "first": "second", "x": "y"}


@dataclass(slots=True)
class Utility:
    """One hand-written function in all its forms."""

    names: list[str]
    choices: dict[str, list[str]] = field(default_factory=dict)
    summaries: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)


def read_utilities(path: Path = UTILITIES) -> list[Utility]:
    """Read the hand-written utilities."""
    utilities: list[Utility] = []
    body: list[str] = []

    def close_body() -> None:
        if body:
            utilities[-1].bodies.append("\n".join(body).strip("\n"))
            body.clear()

    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            close_body()
            utilities.append(Utility(names=line[3:].split(", ")))
        elif line.startswith("- "):
            utilities[-1].summaries.append(line[2:])
        elif not body and (match := re.match(r"(\w+): (.+)$", line)):
            utilities[-1].choices[match[1]] = match[2].split(", ")
        else:
            has_definition = any(part.startswith(("def ", "class ")) for part in body)
            if has_definition and line.startswith(("def ", "class ", "import ", "from ")):
                close_body()
            body.append(line)
    close_body()
    return utilities


def _fill(
    utility: Utility, summary: str, body: str, name: str, choose: random.Random
) -> Function | None:
    text = body + "\n" + summary
    wanted = [p for p in re.findall(r"\$(\w+)", text) if p != "f"]
    taken = set(re.findall(r"(?<![$\w])[a-z_]\w*", body))
    values: dict[str, str] = {"f": name}
    for placeholder in dict.fromkeys(wanted):
        options = utility.choices.get(placeholder) or COMMON_CHOICES[placeholder]
        options = [o for o in options if o not in values.values() and o not in taken]
        if not options:
            return None
        if placeholder == "b" and values.get("a") in PARTNERS and PARTNERS[values["a"]] in options:
            options = [PARTNERS[values["a"]]]
        values[placeholder] = choose.choice(options)
    code = string.Template(body).substitute(values)
    return make(name, string.Template(summary).substitute(values), code)


def make(name: str, summary: str, bare: str) -> Function | None:
    """Return the function with its docstring put in, or None where the result would not parse."""
    head = re.search(r"^((?:def|class) [^\n]*:)\n", bare, re.MULTILINE)
    if head is None:
        return None
    gap = "\n" if head[1].startswith("class") else ""
    documented = f'{bare[: head.end()]}    """{summary}"""\n{gap}{bare[head.end() :]}'
    if not parses(documented):
        return None
    return Function(
        name=name,
        package=PACKAGE,
        summary=summary,
        documented=documented,
        bare=bare,
        is_method=False,
        key=identity(name, bare),
    )


def utility_functions(*, per_utility: int, seed: int) -> Iterator[Function]:
    """Yield up to `per_utility` distinct forms of every hand-written utility."""
    for number, utility in enumerate(read_utilities()):
        choose = random.Random(f"{seed}-{number}")
        seen: set[str] = set()
        for _ in range(per_utility * 2):
            function = _fill(
                utility,
                choose.choice(utility.summaries),
                choose.choice(utility.bodies),
                choose.choices(utility.names, weights=[3] + [1] * (len(utility.names) - 1))[0],
                choose,
            )
            if function is None or function.documented in seen:
                continue
            seen.add(function.documented)
            if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1:
                function = replace(function, key=HELD_OUT_KEY + function.key[8:])
            yield function
            if len(seen) >= per_utility:
                break


PREDICATES = [  # (words, name, test)
    ("even", "even", "{x} % 2 == 0"),
    ("odd", "odd", "{x} % 2 == 1"),
    ("positive", "positive", "{x} > 0"),
    ("negative", "negative", "{x} < 0"),
    ("non-zero", "nonzero", "{x} != 0"),
    ("large", "large", "{x} > 100"),
    ("small", "small", "{x} < 10"),
    ("two-digit", "two_digit", "10 <= {x} < 100"),
    ("whole", "whole", "{x} == int({x})"),
]
TRANSFORMS = [  # (words, name, expression)
    ("", "", "{x}"),
    ("squares of the ", "squares", "{x} ** 2"),
    ("cubes of the ", "cubes", "{x} ** 3"),
    ("doubles of the ", "doubles", "2 * {x}"),
    ("halves of the ", "halves", "{x} / 2"),
    ("absolute values of the ", "absolute", "abs({x})"),
    ("negatives of the ", "negated", "-{x}"),
]
AGGREGATES = [  # (words, name, whole form, start, step)
    ("the sum of", "sum", "sum({g})", "0", "{t} += {e}"),
    ("a list of", "list", "[{g}]", "[]", "{t}.append({e})"),
    ("the largest of", "max", "max({g})", None, None),
    ("the smallest of", "min", "min({g})", None, None),
    ("the product of", "product", None, "1", "{t} *= {e}"),
    ("the set of", "set", "{{{g}}}", "set()", "{t}.add({e})"),
]
MULTIPLES = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12]


def composed_functions() -> Iterator[Function]:
    """Yield functions such as 'the sum of the squares of the even numbers', short and long."""
    predicates = list(PREDICATES)
    predicates += [
        (f"multiples of {k} among the", f"multiples_of_{k}", f"{{x}} % {k} == 0") for k in MULTIPLES
    ]
    for predicate, transform, aggregate in itertools.product(predicates, TRANSFORMS, AGGREGATES):
        name = "_".join(part for part in (aggregate[1], transform[1], predicate[1]) if part)
        choose = random.Random(name)
        xs, x = choose.choice(["numbers", "values"]), choose.choice(["x", "n", "number"])
        what = f"{transform[0]}{predicate[0]} numbers"
        summary = f"Return {aggregate[0]} the {what} in a list."
        test, value = predicate[2].format(x=x), transform[2].format(x=x)
        total = "result"
        forms: list[str] = []
        if aggregate[2] is not None:
            whole = aggregate[2].format(g=f"{value} for {x} in {xs} if {test}")
            forms.append(f"def {name}({xs}):\n    return {whole}")
        if aggregate[3] is not None and aggregate[4] is not None:
            step = aggregate[4].format(t=total, e=value)
            forms.append(
                f"def {name}({xs}):\n    {total} = {aggregate[3]}\n    for {x} in {xs}:\n"
                f"        if {test}:\n            {step}\n    return {total}"
            )
        for bare in forms:
            if (function := make(name, summary, bare)) is not None:
                yield function


CONVERSIONS = [  # (from, to, expression)
    ("celsius", "fahrenheit", "{x} * 9 / 5 + 32"),
    ("fahrenheit", "celsius", "({x} - 32) * 5 / 9"),
    ("celsius", "kelvin", "{x} + 273.15"),
    ("kelvin", "celsius", "{x} - 273.15"),
    ("kilometers", "miles", "{x} * 0.621371"),
    ("miles", "kilometers", "{x} * 1.609344"),
    ("meters", "feet", "{x} * 3.28084"),
    ("feet", "meters", "{x} * 0.3048"),
    ("inches", "centimeters", "{x} * 2.54"),
    ("centimeters", "inches", "{x} / 2.54"),
    ("kilograms", "pounds", "{x} * 2.20462"),
    ("pounds", "kilograms", "{x} * 0.453592"),
    ("liters", "gallons", "{x} * 0.264172"),
    ("gallons", "liters", "{x} * 3.785412"),
    ("hours", "minutes", "{x} * 60"),
    ("minutes", "hours", "{x} / 60"),
    ("minutes", "seconds", "{x} * 60"),
    ("seconds", "minutes", "{x} / 60"),
    ("days", "hours", "{x} * 24"),
    ("hours", "days", "{x} / 24"),
    ("weeks", "days", "{x} * 7"),
    ("days", "weeks", "{x} / 7"),
    ("degrees", "radians", "{x} * 3.141592653589793 / 180"),
    ("radians", "degrees", "{x} * 180 / 3.141592653589793"),
    ("dollars", "cents", "{x} * 100"),
    ("cents", "dollars", "{x} / 100"),
    ("bytes", "kilobytes", "{x} / 1024"),
    ("kilobytes", "bytes", "{x} * 1024"),
    ("megabytes", "bytes", "{x} * 1024 * 1024"),
    ("grams", "ounces", "{x} * 0.035274"),
]
FORMULAS = [  # (quantity, thing, arguments, expression)
    ("area", "circle", "radius", "3.141592653589793 * radius ** 2"),
    ("circumference", "circle", "radius", "2 * 3.141592653589793 * radius"),
    ("area", "rectangle", "width, height", "width * height"),
    ("perimeter", "rectangle", "width, height", "2 * (width + height)"),
    ("area", "square", "side", "side ** 2"),
    ("perimeter", "square", "side", "4 * side"),
    ("area", "triangle", "base, height", "base * height / 2"),
    ("perimeter", "triangle", "a, b, c", "a + b + c"),
    ("volume", "cube", "side", "side ** 3"),
    ("volume", "box", "width, height, depth", "width * height * depth"),
    ("volume", "sphere", "radius", "4 / 3 * 3.141592653589793 * radius ** 3"),
    ("volume", "cylinder", "radius, height", "3.141592653589793 * radius ** 2 * height"),
    ("volume", "cone", "radius, height", "3.141592653589793 * radius ** 2 * height / 3"),
    ("surface", "cube", "side", "6 * side ** 2"),
    ("surface", "sphere", "radius", "4 * 3.141592653589793 * radius ** 2"),
    ("area", "trapezoid", "a, b, height", "(a + b) * height / 2"),
    ("diagonal", "rectangle", "width, height", "(width ** 2 + height ** 2) ** 0.5"),
    ("hypotenuse", "right triangle", "a, b", "(a ** 2 + b ** 2) ** 0.5"),
    ("speed", "moving object", "distance, time", "distance / time"),
    ("density", "body", "mass, volume", "mass / volume"),
    ("force", "body", "mass, acceleration", "mass * acceleration"),
    ("kinetic energy", "body", "mass, speed", "mass * speed ** 2 / 2"),
]


def formula_functions() -> Iterator[Function]:
    """Yield unit conversions and geometric or physical formulas."""
    for source, goal, expression in CONVERSIONS:
        for name, argument in ((f"{source}_to_{goal}", source), (f"to_{goal}", "value")):
            for summary in (f"Convert {source} to {goal}.", f"Return {source} in {goal}."):
                bare = f"def {name}({argument}):\n    return {expression.format(x=argument)}"
                if (function := make(name, summary, bare)) is not None:
                    yield function
    for quantity, thing, arguments, expression in FORMULAS:
        for name in (f"{thing}_{quantity}", f"{quantity}_of_{thing}"):
            name = name.replace(" ", "_")
            for verb in ("Return", "Compute"):
                summary = f"{verb} the {quantity} of a {thing}."
                uses_pi = "3.141592653589793" in expression
                forms = [f"def {name}({arguments}):\n    return {expression}"]
                if uses_pi:
                    shorter = expression.replace("3.141592653589793", "math.pi")
                    forms = [f"import math\n\n\ndef {name}({arguments}):\n    return {shorter}"]
                for bare in forms:
                    if (function := make(name, summary, bare)) is not None:
                        yield function


def build_synthetic(*, per_utility: int = 40, seed: int = 0) -> list[Function]:
    """Return every synthetic function, in a fixed order."""
    functions = list(utility_functions(per_utility=per_utility, seed=seed))
    functions += list(composed_functions())
    functions += list(formula_functions())
    return functions
