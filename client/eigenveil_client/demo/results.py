"""What a demonstration leaves behind for people: the release as it was signed, and its report."""

from __future__ import annotations

from eigenveil.numerics.linalg import sin_angle
from eigenveil.reporting.report import Projection, render
from eigenveil.reporting.verify import load_release, verify_release
from eigenveil.site.quantize import to_grid
from eigenveil.study.study import Study
from eigenveil_client.connection.identity import StoredIdentity
from eigenveil_client.demo.layout import Layout, PublicRecords
from eigenveil_client.local.exact_pca import exact
from eigenveil_common.files import write_durably


def write(
    layout: Layout, study: Study, records: PublicRecords, release: bytes, identity: StoredIdentity
) -> float | None:
    """Write release.json and report.html; the sine to the exact answer, which public records allow.

    None if nothing was released that has an error.
    """
    write_durably(layout.root / "release.json", release)
    signed = load_release(release)
    verify_release(signed, identity.release_key)
    result = signed.result
    sine, projection = None, None
    if result.declined is None:
        components = result.components
        sine = sin_angle(exact(to_grid(records.values, study), study), components)
        scaled = (records.values - result.mean) / result.scale
        projection = Projection(
            points=scaled @ components.T,
            groups=records.groups,
            note="The dots are the demonstration's public records; in a study none would leave its site.",
        )
    page = render(
        signed.document,
        public_key=signed.public_key.hex(),
        projection=projection,
        measured_sin_angle=sine,
    )
    write_durably(layout.root / "report.html", page.encode())
    return sine
