"""Reports as one self-contained HTML file; needs the extra `report`.

`page` lays a report out, `charts` draws its figures.
"""

from prenet_gnn.reporting.page import Report, page, write_report

__all__ = ["Report", "page", "write_report"]
