//! Everything that a browser loads, in the binary: nothing is fetched from elsewhere.

/// The page.
pub const INDEX: &str = include_str!("assets/index.html");
/// Its style.
pub const STYLE: &str = include_str!("assets/page.css");
/// Its program, in the order in which browsers load it.
pub const SCRIPTS: [(&str, &str); 4] = [
    ("uplot.js", UPLOT),
    ("charts.js", include_str!("assets/charts.js")),
    ("views.js", include_str!("assets/views.js")),
    ("page.js", include_str!("assets/page.js")),
];
/// uPlot 1.6.32 (npm), MIT: its minified file as published.
pub const UPLOT: &str = include_str!("assets/uplot.js");
/// The style of uPlot.
pub const UPLOT_STYLE: &str = include_str!("assets/uplot.css");
/// Its licence.
pub const UPLOT_LICENSE: &str = include_str!("assets/UPLOT-LICENSE");
/// The interface for programs, OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("assets/openapi.json");

/// Published tables: name, hops of the set-up, rows.
pub const PUBLISHED: [(&str, usize, &str); 3] = [
    ("brtp-100mbit", 1, include_str!("published/brtp-100mbit.csv")),
    ("brtp-1gbit", 1, include_str!("published/brtp-1gbit.csv")),
    ("bats-six-hops", 6, include_str!("../../../../docs/results/data/bats-six-hops.csv")),
];
