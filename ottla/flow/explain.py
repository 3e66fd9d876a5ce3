"""A plan as text: what each step does, its keys and values, its partitioning, and its line in the program."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.flow import plan
from ottla.flow.window import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows


def explain(program: plan.Plan, lanes: Mapping[plan.Node, str]) -> str:
    """A paragraph for each node, in the order of the program. `lanes` says how functions run (lanes.py)."""
    lines = []
    for number, node in enumerate(program, 1):
        schema = node.schema
        lines.append(f"{number:3} {operation(node)}  {node.name}")
        if node.parents:
            lines.append(f"      from  {', '.join(parent.name for parent in node.parents)}")
        if schema.kind != "nothing":
            keys = "partitioned by key" if schema.partitioned else "not partitioned by key"
            which = f"; {changes(node)}" if schema.kind == "table" else ""
            types = f"key {schema.key or 'default'}, value {schema.value or 'default'}"
            lines.append(f"      emits a {schema.kind}: {types}; {keys}{which}")
        lines += [f"      {detail}" for detail in details(node)]
        if node in lanes:
            lines.append(f"      lane  {lanes[node]}")
        lines.append(f"      at    {node.where}")
    return "\n".join(lines) + "\n"


def operation(node: plan.Node) -> str:
    """The node's operation in two or three words."""
    match node:
        case plan.StreamSource():
            return f"stream of {node.pattern.pattern if node.pattern else ', '.join(node.topics)}"
        case plan.TableSource():
            return f"table of {node.topic}"
        case plan.GlobalSource():
            return f"global table of {node.topic}"
        case plan.AddStore():
            return "state store"
        case plan.Stateless() | plan.TableMap() | plan.Aggregate() | plan.TableAggregate():
            return node.operation.replace("_", " ")
        case plan.SinkNode():
            return f"to {node.topic if isinstance(node.topic, str) else 'a topic for each record'}"
        case plan.StreamJoin() | plan.TableJoin():
            return f"{node.kind} join"
        case plan.StreamTableJoin():
            kind = "left join" if node.left else "inner join"
            return f"{kind} with {'global table' if node.global_store else 'table'}"
        case plan.ForeignKeyJoin():
            return f"foreign-key {'left' if node.left else 'inner'} join"
        case plan.Process():
            return "process values" if node.fixed_key else "process"
    words = {
        plan.Branch: "split",
        plan.Arm: "branch",
        plan.Repartition: "repartition",
        plan.TableRepartition: "repartition",
        plan.CogroupMerge: "cogroup",
        plan.ToTable: "to table",
        plan.TableGroup: "group by",
        plan.Suppress: "suppress",
    }
    return words[type(node)]


def changes(node: plan.Node) -> str:
    """Which of a table's changes a node emits."""
    if isinstance(node, plan.Suppress):
        return "the last change of those it holds back"
    return "one change when a window closes" if getattr(node, "on_close", False) else "every change"


def details(node: plan.Node) -> list[str]:
    """The node's times, windows, stores and internal topics, a line each."""
    lines = []
    if isinstance(node, (plan.StreamSource, plan.TableSource, plan.GlobalSource)):
        lines.append(f"times: {_times(node.extractor)}")
    windows = getattr(node, "windows", None)
    if windows is not None:
        lines.append(f"windows: {_windows(windows)}{', emitted on close' if getattr(node, 'on_close', False) else ''}")
    lines += [f"store {store.name} ({store.kind.replace('_', ' ')})" for store in plan.stores_of(node)]
    if isinstance(node, (plan.Repartition, plan.TableRepartition)):
        lines.append(f"through topic <application id>-{node.topic}")
    if isinstance(node, plan.ForeignKeyJoin):
        lines.append(f"through topics {node.names.registration_topic}, {node.names.response_topic}")
    if isinstance(node, plan.Suppress):
        rule = node.rule
        lines.append(
            f"waits {rule.wait_ms} ms {'after the window ends' if rule.by_window else 'after the first update'}"
        )
    return lines


def _times(extractor: object) -> str:
    """Where the times of a source's records come from."""
    return "of the records" if extractor is None else f"by {getattr(extractor, '__name__', type(extractor).__name__)}"


def _windows(windows: object) -> str:
    match windows:
        case TimeWindows():
            return f"{windows.size_ms} ms every {windows.advance_ms} ms, grace {windows.grace_ms} ms"
        case UnlimitedWindows():
            return f"one, from {windows.start_ms} ms without an end"
        case SlidingWindows():
            return f"sliding {windows.difference_ms} ms, grace {windows.grace_ms} ms"
        case SessionWindows():
            return f"sessions with gaps of {windows.gap_ms} ms, grace {windows.grace_ms} ms"
        case Windows():
            return f"{type(windows).__name__}, up to {windows.size_ms} ms, grace {windows.grace_ms} ms"
        case JoinWindows():
            return f"{windows.before_ms} ms before to {windows.after_ms} ms after, grace {windows.grace_ms} ms"
    return repr(windows)
