//! What is packaged beside the program: the units of systemd, and what the dependencies may be.

use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

const UNITS: [&str; 4] = [
    "packaging/noctule-node.service",
    "packaging/noctule-relay.service",
    "packaging/noctule-recv.service",
    "packaging/noctule-serve.service",
];
const SCRIPTS: [&str; 4] = ["packaging/deb/postinst", "packaging/deb/prerm", "packaging/deb/postrm", "packaging/install.sh"];

#[test]
fn units_start_the_program_where_the_guide_puts_it_and_confine_it() {
    // By name: systemd finds it in /usr/local/bin, where the guide puts it, and in /usr/bin, where the package does.
    assert!(read("docs/guide/getting-started.md").contains("sudo install target/release/noctule /usr/local/bin/"));
    for unit in UNITS {
        let text = read(unit);
        let lines: HashSet<&str> = text.lines().collect();
        for line in text.lines().filter(|l| l.starts_with("Exec")) {
            assert!(line.contains("=noctule "), "{unit}: {line}");
        }
        let condition = text.lines().find_map(|l| l.strip_prefix("ConditionPathExists=")).expect("waits for its file");
        assert!(read("docs/guide/node.md").contains(condition) || read("docs/guide/sending-files.md").contains(condition), "{condition}");
        for line in [
            "User=noctule",
            "LimitCORE=0",
            "NoNewPrivileges=yes",
            "DevicePolicy=closed",
            "LockPersonality=yes",
            "MemoryDenyWriteExecute=yes",
            "MemoryMax=1G",
            "PrivateTmp=yes",
            "ProcSubset=pid",
            "ProtectClock=yes",
            "ProtectControlGroups=yes",
            "ProtectHome=yes",
            "ProtectHostname=yes",
            "ProtectKernelLogs=yes",
            "ProtectKernelModules=yes",
            "ProtectKernelTunables=yes",
            "ProtectProc=invisible",
            "ProtectSystem=strict",
            "RemoveIPC=yes",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX",
            "RestrictNamespaces=yes",
            "RestrictRealtime=yes",
            "RestrictSUIDSGID=yes",
            "StateDirectoryMode=0700",
            "SystemCallArchitectures=native",
            "SystemCallFilter=@system-service",
            "SystemCallFilter=~@privileged @resources",
            "TasksMax=256",
        ] {
            assert!(lines.contains(line), "{unit} lacks {line}");
        }
    }
    // What only one of them may have.
    assert!(read(UNITS[0]).contains("\nCapabilityBoundingSet=CAP_NET_ADMIN\n"));
    for unit in &UNITS[1..] {
        let text = read(unit);
        for line in ["CapabilityBoundingSet=", "PrivateUsers=yes", "PrivateDevices=yes"] {
            assert!(text.contains(&format!("\n{line}\n")), "{unit} lacks {line}");
        }
    }
}

/// systemd's own figure: 0 is confined, 10 is not.
#[test]
fn systemd_calls_the_units_confined() {
    for (unit, most) in UNITS.iter().zip([2.0, 1.5, 1.5, 1.5]) {
        let asked = Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(root().join(unit)).output();
        let Ok(out) = asked else {
            eprintln!("*** SKIPPED: there is no systemd-analyze here");
            return;
        };
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let words: Vec<&str> =
            text.lines().rfind(|l| l.contains("Overall exposure level")).unwrap_or_default().split_whitespace().collect();
        let Some(figure) = words.iter().find_map(|w| w.parse::<f64>().ok()) else {
            eprintln!("*** SKIPPED: this systemd-analyze does not judge files: {}", String::from_utf8_lossy(&out.stderr));
            return;
        };
        assert!(figure <= most, "{unit}: {figure}\n{text}");
    }
}

/// What systemd understands of the units: every key, and that the program is there.
#[test]
fn systemd_takes_the_units() {
    let directory = tempfile::tempdir().unwrap();
    let units = UNITS.map(|unit| {
        let to = directory.path().join(Path::new(unit).file_name().unwrap());
        let with_place = |l: &str| {
            if l.starts_with("Exec") { l.replace("=noctule ", concat!("=", env!("CARGO_BIN_EXE_noctule"), " ")) } else { l.to_owned() }
        };
        fs::write(&to, read(unit).lines().map(|l| with_place(l) + "\n").collect::<String>()).unwrap();
        to
    });
    let Ok(out) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(units).output() else {
        eprintln!("*** SKIPPED: there is no systemd-analyze here");
        return;
    };
    let text = String::from_utf8_lossy(&out.stderr);
    if text.contains("Failed to initialize manager") || text.contains("unrecognized option") {
        eprintln!("*** SKIPPED: this systemd-analyze does not verify files here: {text}");
        return;
    }
    let ours: Vec<&str> = text.lines().filter(|l| l.contains("noctule")).collect();
    assert!(out.status.success() && ours.is_empty(), "{text}");
}

#[test]
fn the_package_holds_files_that_are_there_and_each_unit() {
    let package = read("packaging/nfpm.yaml");
    let sources: Vec<&str> = package.split_whitespace().filter(|w| w.starts_with("packaging/")).collect();
    for source in &sources {
        assert!(root().join(source).is_file(), "packaging/nfpm.yaml names {source}");
    }
    for unit in UNITS {
        assert!(sources.contains(&unit), "packaging/nfpm.yaml lacks {unit}");
        // Restarted by an upgrade, ended by a removal.
        let name = Path::new(unit).file_stem().unwrap().to_str().unwrap();
        for script in SCRIPTS {
            assert!(read(script).contains(name), "{script} does not know {name}");
        }
    }
    // What the build stages is what is packaged.
    let script = read("x");
    for staged in package.split_whitespace().filter_map(|w| w.strip_prefix("${DIST_STAGE}/")) {
        assert!(script.contains(staged.trim_end_matches('/')), "./x dist does not make {staged}");
    }
    for file in [UNITS[2], "packaging/noctule-recv.default"].map(|f| Path::new(f).file_name().unwrap().to_str().unwrap().to_owned()) {
        assert!(read("packaging/install.sh").contains(&file), "{file}");
    }
}

#[test]
fn scripts_of_the_package_can_be_read_by_any_shell() {
    use std::os::unix::fs::PermissionsExt;
    for script in SCRIPTS {
        let path = root().join(script);
        assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o111, 0, "{script} is not executable");
        let out = Command::new("sh").arg("-n").arg(&path).output().unwrap();
        assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
        match Command::new("shellcheck").arg(&path).output() {
            Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout)),
            Err(_) => eprintln!("*** SKIPPED: there is no shellcheck here"),
        }
    }
}

/// The rules of deny.toml that need neither cargo-deny nor a network; `./x deny` has them all.
#[test]
fn dependencies_are_what_deny_toml_allows() {
    let rules: toml::Table = toml::from_str(&read("deny.toml")).unwrap();
    let names = |table: &str, key: &str| -> Vec<String> {
        let list = rules[table][key].as_array().unwrap();
        list.iter().map(|v| v.as_str().unwrap_or_else(|| v["crate"].as_str().unwrap()).to_owned()).collect()
    };
    let (licences, registries, denied) = (names("licenses", "allow"), names("sources", "allow-registry"), names("bans", "deny"));
    let cargo = option_env!("CARGO").unwrap_or("cargo");
    let out = Command::new(cargo)
        .args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100);
    for package in packages {
        let name = package["name"].as_str().unwrap();
        assert!(!denied.iter().any(|d| d == name), "{name} is banned");
        let source = package["source"].as_str();
        assert!(source.is_none_or(|s| registries.iter().any(|r| s == format!("registry+{r}"))), "{name} comes from {source:?}");
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_allowed(licence, &licences), "{name} is licensed {licence:?}");
    }
}

/// An SPDX expression as crates write them: alternatives in brackets at most, joined by AND.
fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    let all = expression.replace('/', " OR ").replace(['(', ')'], "");
    !all.is_empty() && all.split(" AND ").all(|part| part.split(" OR ").any(|licence| allowed.iter().any(|a| a == licence)))
}

#[test]
fn a_licence_is_allowed_only_if_each_part_has_an_allowed_alternative() {
    let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
    for good in ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR Apache-2.0) AND Apache-2.0"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND OpenSSL"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
