"""A plan as an SVG drawing: boxes by depth, arrows from parents to children."""

from __future__ import annotations

from html import escape

from ottla.flow.explain import operation
from ottla.flow.plan import Node, Plan, Schema

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 230, 46, 24, 34, 16
_FILL: dict[str, str] = {"stream": "#e8f0fe", "table": "#e6f4ea", "global table": "#fef7e0", "nothing": "#f1f3f4"}


def draw(program: Plan) -> str:
    """A self-contained SVG document."""
    depth: dict[Node, int] = {}
    column: dict[Node, int] = {}
    used: dict[int, int] = {}
    for node in program:
        depth[node] = 1 + max((depth[parent] for parent in node.parents), default=-1)
        wanted = column[node.parents[0]] if node.parents else 0
        column[node] = max(used.get(depth[node], 0), wanted)
        used[depth[node]] = column[node] + 1
    width = 2 * _MARGIN + max(used.values(), default=1) * (_WIDTH + _GAP_X)
    height = 2 * _MARGIN + (1 + max(depth.values(), default=0)) * (_HEIGHT + _GAP_Y)
    at = {
        node: (_MARGIN + column[node] * (_WIDTH + _GAP_X), _MARGIN + depth[node] * (_HEIGHT + _GAP_Y))
        for node in program
    }
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">',
        '<defs><marker id="arrow" markerWidth="8" markerHeight="8" refX="7" refY="4" orient="auto">',
        '<path d="M0,0 L8,4 L0,8 z" fill="#5f6368"/></marker></defs>',
    ]
    for node in program:
        x, y = at[node]
        for parent in node.parents:
            from_x, from_y = at[parent]
            parts.append(
                f'<line x1="{from_x + _WIDTH // 2}" y1="{from_y + _HEIGHT}" x2="{x + _WIDTH // 2}" y2="{y}" '
                'stroke="#5f6368" marker-end="url(#arrow)"/>'
            )
    parts += [_box(node, *at[node], node.schema) for node in program]
    return "\n".join((*parts, "</svg>")) + "\n"


def _box(node: Node, x: int, y: int, schema: Schema) -> str:
    return (
        f'<g><title>{escape(str(node.where))}</title><rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="{_FILL[schema.kind]}" stroke="#5f6368"/>'
        f'<text x="{x + 8}" y="{y + 19}" font-size="13">{escape(operation(node))}</text>'
        f'<text x="{x + 8}" y="{y + 36}" font-size="9" fill="#5f6368">{escape(node.name)}</text></g>'
    )
