//! Which source a binary was built from: `NOCTULE_COMMIT` and `NOCTULE_DATE` for `--version`. The same source gives the same values.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SOURCE_DATE_EPOCH");
    println!("cargo::rerun-if-changed=build.rs");
    let commit = commit();
    let date = std::env::var("SOURCE_DATE_EPOCH").ok().and_then(|text| text.trim().parse().ok());
    let date = date.or_else(|| commit.as_ref().map(|(_, seconds)| *seconds)).map_or_else(|| "unknown".to_owned(), date_of);
    println!("cargo::rustc-env=NOCTULE_COMMIT={}", commit.map_or_else(|| "unknown".to_owned(), |(hash, _)| hash));
    println!("cargo::rustc-env=NOCTULE_DATE={date}");
    println!("cargo::rustc-env=NOCTULE_TARGET={}", std::env::var("TARGET").unwrap_or_default());
}

fn git(root: &Path, words: &[&str]) -> Option<String> {
    let out = Command::new("git").arg("-C").arg(root).args(words).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Hash and time of the commit; `None` outside of this project's own repository, as in a tarball that was unpacked inside another repository.
fn commit() -> Option<(String, i64)> {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").ok()?).join("../..").canonicalize().ok()?;
    if Path::new(&git(&root, &["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // What moves when another commit is checked out, in a worktree of its own too.
    let head = git(&root, &["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(head.as_deref()) {
        let path = root.join(git(&root, &["rev-parse", "--git-path", name])?);
        // A path that is not there would be taken for one that changes all the time.
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    let seconds = git(&root, &["log", "-1", "--format=%ct"])?.parse().ok()?;
    Some((git(&root, &["rev-parse", "--short=12", "HEAD"])?, seconds))
}

/// Year, month and day (UTC) of seconds since 1970: civil_from_days of Howard Hinnant, "chrono-compatible low-level date algorithms".
fn date_of(seconds: i64) -> String {
    let days = seconds.div_euclid(86_400) + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}
