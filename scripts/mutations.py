# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts/mutate may do to one line of C++, and which lines it draws.

A mutant is {"file", "line", "operator", "old", "new"}: in `file`, the text `old` becomes `new`. With `line` both are that
whole line; without, `old` stands once in the file.
"""
import random
import re

SUFFIXES = {".cpp", ".h", ".inc"}

# Text that stands alone between blanks; the code is formatted, so that brackets of templates and pointers do not.
SWAPS = {
    "relation": {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " == ": " != ", " != ": " == "},
    "arithmetic": {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " % ": " / ", " += ": " -= ",
                   " -= ": " += ", " *= ": " += "},
    "logic": {" && ": " || ", " || ": " && "},
    "bits": {" & ": " | ", " | ": " & ", " |= ": " &= ", " &= ": " |= ", " << ": " >> ", " >> ": " << "},
    "extreme": {"std::min(": "std::max(", "std::max(": "std::min(", "std::min<": "std::max<", "std::max<": "std::min<"},
    "jump": {"continue;": "break;", "break;": "continue;"},
    "truth": {"true": "false", "false": "true"},
}
WORDS = {"truth"}
STRING = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)\'')
NUMBER = re.compile(r"(?<![\w.'])(\d+)(u?)(?![\w.'])")
NOT = re.compile(r"!(?=[A-Za-z_(*])")
ARGUMENTS = re.compile(r"\(([\w.\->\[\]]+), ([\w.\->\[\]]+)\)")
RETURN = re.compile(r"^(\s*return) ([^;]+);$")
# An assignment, a call, a step, or a return of nothing: what can be left out. Declarations have a blank after their type.
STATEMENT = re.compile(r"^(?:[*(]*[\w.:]+(?:->[\w.]+|\[\]|\(\))*\)?(?:\[\]|\(\))* (?:[-+*/%|&^]|<<|>>)?= .*"
                       r"|(?:\+\+|--)\S+|[*(]*[\w.:]+(?:->[\w.]+|\[\]|\(\))*\(\)|return);$")
NESTED = re.compile(r"\([^()]+\)|\[[^\[\]]+\]")
STARTS_AFTER = re.compile(r"(?:[;{}:)]|\belse|\bdo)\s*(?://.*)?$")


def masked(line):
    """The line with blanks in place of strings and of a comment at its end, so that offsets stay."""
    line = STRING.sub(lambda m: '"' + "#" * (len(m[0]) - 2) + '"', line)
    at = line.find("//")
    return line if at < 0 else line[:at] + " " * (len(line) - at)


def conditionOf(code):
    """Where the condition of an `if (...)` or `while (...)` begins and ends, if it stands on this line alone."""
    found = re.match(r"\s*(?:\} )?(?:else )?(?:if|while) (?:constexpr )?\(", code)
    if not found or "constexpr" in found[0]:
        return None
    depth = 1
    for at in range(found.end(), len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            inner = code[found.end():at]
            return None if ";" in inner or re.search(r"[^=!<>]=[^=]", inner) else (found.end(), at)
    return None


def isStatement(code):
    """Whether the line is a whole statement that may be left out."""
    text = code.strip()
    while (shorter := NESTED.sub(lambda m: m[0][0] + m[0][-1], text)) != text:
        text = shorter
    return bool(STATEMENT.match(text)) and not text.startswith("using")


def mutationsOf(line, before=""):
    """All (operator, new line) of one line of code; `before` is the line of code above it."""
    code = masked(line)
    if not code.strip() or code.lstrip().startswith(("#", "*", "/*")) or "static_assert" in code:
        return []
    made = []

    def put(operator, begin, end, text):
        made.append((operator, line[:begin] + text + line[end:]))

    for operator, swaps in SWAPS.items():
        for old, new in swaps.items():
            pattern = rf"\b{old}\b" if operator in WORDS else re.escape(old)
            for found in re.finditer(pattern, code):
                if old in (" + ", " += ") and '"' in (code[found.start() - 1], code[found.end()]):
                    continue  # joins text
                put(operator, found.start(), found.end(), new)
    for found in NUMBER.finditer(code):
        value = int(found[1])
        for other in ([value + 1, value - 1] if value else [1]):
            put("constant", found.start(), found.end(), f"{other}{found[2]}")
    for found in NOT.finditer(code):
        put("not", found.start(), found.end(), "")
    for found in ARGUMENTS.finditer(code):
        if found[1] != found[2]:
            put("arguments", found.start(), found.end(), f"({found[2]}, {found[1]})")
    if span := conditionOf(code):
        inner = line[span[0]:span[1]]
        put("condition", *span, f"!({inner})")
        put("condition", *span, f"({inner}) && false")
        put("condition", *span, f"({inner}) || true")
    if found := RETURN.match(code.rstrip()):
        if found[2] not in ("{}", "true", "false"):
            put("return", found.start(2), found.end(2), "{}")
    if isStatement(code) and STARTS_AFTER.search(before or "{"):
        indent = len(line) - len(line.lstrip())
        made.append(("dropped", line[:indent] + "{}"))
    return [(operator, new) for operator, new in made if new != line]


def linesOf(text, together=False):
    """(number, line, mutations) of every line that has any; with `together`, of those that can be selected."""
    found, before = [], ""
    inComment = False
    for number, line in enumerate(text.split("\n"), 1):
        if inComment or line.lstrip().startswith("/*"):
            inComment = "*/" not in line
            continue
        mutations = [(operator, new) for operator, new in mutationsOf(line, before)
                     if not together or selected(1, {"old": line, "new": new}, before)]
        if mutations:
            found.append((number, line, mutations))
        if masked(line).strip():
            before = masked(line).rstrip()
    return found


def drawn(files, seed, perFile=1, together=False):
    """Mutants of `files` (path to text), one a line, in the order in which the seed draws them. Every line is as likely as
    every other, then every mutation of it. With `perFile`, a line brings the next so many of its file along, in an order
    that is as random. With `together`, only those that one object can hold with others.
    """
    lines = [(path, *line) for path in sorted(files) for line in linesOf(files[path], together)]
    rng = random.Random(seed)
    rng.shuffle(lines)
    ofFile = {}
    for line in lines:
        ofFile.setdefault(line[0], []).append(line)
    for first in lines:
        left = ofFile[first[0]]
        if first not in left:
            continue  # came along with another
        for path, number, line, mutations in left[:perFile]:
            operator, new = rng.choice(mutations)
            yield {"file": path, "line": number, "operator": operator, "old": line, "new": new}
        del left[:perFile]


SWITCH = "millraceMutant"
DECLARATION = re.compile(r"^(\s+(?:const |static )*[\w:<>*]+(?:, [\w:]+>)? [*&]?\w+ = )([^{}]+);$")


def forParts(code):
    """Where the second part of a `for (a; b; c)` of one line begins and ends."""
    if not re.match(r"\s*for \(.*;.*;.*\)", code):
        return None
    first = code.index(";")
    return first + 1, code.index(";", first + 1)


def selected(number, mutant, before):
    """The mutant's line with both forms in it, of which `SWITCH == number` selects the new one; None if it is no whole
    statement, condition or initial value.
    """
    old, new = mutant["old"], mutant["new"]
    chosen = f"{SWITCH} == {number}"
    codes = masked(old), masked(new)
    for parts in (conditionOf, forParts):
        spans = [parts(code) for code in codes]
        if all(spans) and old[:spans[0][0]] == new[:spans[1][0]] and old[spans[0][1]:] == new[spans[1][1]:]:
            forms = [line[span[0]:span[1]] for line, span in ((new, spans[1]), (old, spans[0]))]
            return f"{old[:spans[0][0]]}({chosen} ? bool({forms[0]}) : bool({forms[1]})){old[spans[0][1]:]}"
    if not STARTS_AFTER.search(before or "{"):
        return None
    code = codes[0].rstrip()
    if isStatement(code) or re.match(r"\s+(?:return [^{}]*|continue|break);$", code):
        return f"{{ if ({chosen}) {{ {new[:len(codes[1].rstrip())].strip()} }} else {{ {old[:len(code)].strip()} }} }}"
    found = [DECLARATION.match(line.rstrip()) for line in codes]
    if all(found) and found[0][1] == found[1][1]:
        forms = [line[f.start(2):f.end(2)] for line, f in ((new, found[1]), (old, found[0]))]
        return f"{found[0][1]}{chosen} ? ({forms[0]}) : ({forms[1]});"
    return None


def combined(text, mutants):
    """The text with all of these mutants that can be selected while it runs, and their numbers (from 1 on, as in the list);
    lines keep their numbers.
    """
    lines = text.split("\n")
    known = {number: line for number, line in enumerate(lines, 1)}
    numbers = []
    for number, mutant in enumerate(mutants, 1):
        at = mutant.get("line", 0)
        above = next((masked(known[k]).rstrip() for k in range(at - 1, 0, -1) if masked(known[k]).strip()), "")
        if at and known[at] == mutant["old"] and (line := selected(number, mutant, above)):
            lines[at - 1] = line
            numbers.append(number)
    lines[0] = f"extern int {SWITCH}; {lines[0]}"
    return "\n".join(lines), numbers


def located(text, mutant):
    """The mutant with its line, if it changes a part of one line that stands once in the text."""
    old, new = mutant["old"].strip("\n"), mutant["new"].strip("\n")
    if "line" in mutant or "\n" in old or "\n" in new or text.count(old) != 1:
        return mutant
    at = text[:text.index(old)].count("\n")
    line = text.split("\n")[at]
    return mutant | {"line": at + 1, "old": line, "new": line.replace(old, new)}


def applied(text, mutant):
    """The text with the mutation; ValueError if `old` does not stand there."""
    if "line" in mutant:
        lines = text.split("\n")
        at = mutant["line"] - 1
        if at >= len(lines) or lines[at] != mutant["old"]:
            raise ValueError(f"{mutant['file']}:{mutant['line']} is not '{mutant['old'].strip()}'")
        lines[at] = mutant["new"]
        return "\n".join(lines)
    count = text.count(mutant["old"])
    if count != 1:
        raise ValueError(f"{mutant['file']}: '{mutant['old'].strip()}' stands there {count} times, not once")
    return text.replace(mutant["old"], mutant["new"])
