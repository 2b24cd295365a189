# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks JSON against a JSON Schema, of which it knows the keywords that docs/spec uses. Any other
keyword is an error: it would be a rule that nobody checks."""
import re

NOTES = {"$schema", "title", "description"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
         "integer": int, "number": (int, float)}


def is_of(value, name: str) -> bool:
    """JSON's types: true is no number."""
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def errors(value, schema: dict, at: str = "$") -> list[str]:
    """What breaks the schema, a line each, with the path to it. Raises for an unknown keyword."""
    found = []
    for keyword, rule in schema.items():
        if keyword not in NOTES:
            found += CHECKS[keyword](value, rule, schema, at)
    return found


def check_type(value, rule, _, at):
    names = [rule] if isinstance(rule, str) else rule
    return [] if any(is_of(value, name) for name in names) else [f"{at}: {value!r} is no {names}"]


def check_enum(value, rule, _, at):
    return [] if any(value == each and type(value) is type(each) for each in rule) else [f"{at}: {value!r} is none of {rule}"]


def check_const(value, rule, schema, at):
    return check_enum(value, [rule], schema, at)


def check_pattern(value, rule, _, at):
    wrong = isinstance(value, str) and not re.search(rule, value)
    return [f"{at}: {value!r} does not match {rule}"] if wrong else []


def check_minimum(value, rule, _, at):
    return [f"{at}: {value} is below {rule}"] if is_of(value, "number") and value < rule else []


def check_maximum(value, rule, _, at):
    return [f"{at}: {value} is above {rule}"] if is_of(value, "number") and value > rule else []


def check_items(value, rule, _, at):
    items = value if isinstance(value, list) else []
    return [line for i, item in enumerate(items) for line in errors(item, rule, f"{at}[{i}]")]


def check_properties(value, rule, _, at):
    known = set(rule) & set(value) if isinstance(value, dict) else ()
    return [line for key in sorted(known) for line in errors(value[key], rule[key], f"{at}.{key}")]


def check_required(value, rule, _, at):
    missing = set(rule) - set(value) if isinstance(value, dict) else ()
    return [f"{at}: '{key}' is missing" for key in sorted(missing)]


def check_others(value, rule, schema, at):
    others = set(value) - set(schema.get("properties", {})) if isinstance(value, dict) else ()
    if rule is False:
        return [f"{at}: '{key}' is not in the schema" for key in sorted(others)]
    return [line for key in sorted(others) for line in errors(value[key], rule, f"{at}.{key}")]


def check_any(value, rule, _, at):
    tried = [errors(value, each, at) for each in rule]
    return [] if [] in tried else [line for lines in tried for line in lines]


CHECKS = {"type": check_type, "enum": check_enum, "const": check_const, "pattern": check_pattern,
          "minimum": check_minimum, "maximum": check_maximum, "items": check_items,
          "properties": check_properties, "required": check_required,
          "additionalProperties": check_others, "anyOf": check_any}
