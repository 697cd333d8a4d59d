"""Results of a demonstration on disk: the signed release and its report."""

from __future__ import annotations

from eigenveil.numerics.linalg import sin_angle
from eigenveil.reporting.report import Projection, render
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil.site.record_view import to_grid
from eigenveil.study.study import Study
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.demo.layout import DemoLayout, PublicRecords
from eigenveil_client.local.benchmark import exact_components
from eigenveil_common.files import write_durably


def write_results(
    layout: DemoLayout, study: Study, records: PublicRecords, release: bytes, identity: StoredIdentity
) -> float | None:
    """Write release.json and report.html; return the sine to the exact answer.

    None if no components were released. The records are public, so the exact answer may be used.
    """
    write_durably(layout.root / "release.json", release)
    signed = load_release(release)
    verify_release(signed, identity.release_key)
    result, sine, projection = signed.result, None, None
    if result.declined is None:
        sine = sin_angle(exact_components(to_grid(records.values, study), study), result.components)
        points = (records.values - result.mean) / result.scale @ result.components.T
        note = "The dots are the demonstration's public records; in a study no record leaves its site."
        projection = Projection(points=points, groups=records.groups, note=note)
    key = signed.public_key.hex()
    page = render(signed.document, public_key=key, projection=projection, measured_sin_angle=sine)
    write_durably(layout.root / "report.html", page.encode())
    return sine
