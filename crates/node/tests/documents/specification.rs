//! The pages of docs/spec are enough to read the wire: a decoder that was written from them alone reads the vectors and what the program sends.

use super::root;
use std::path::Path;
use std::process::Command;

/// Output of a script below docs/spec; nothing where there is no Python.
fn python(script: &str, arguments: &[&str]) -> Option<String> {
    let out = Command::new("python3").arg("-B").arg(root().join("docs/spec").join(script)).args(arguments).output();
    let Ok(out) = out else {
        eprintln!("*** SKIPPED: there is no python3 here");
        return None;
    };
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{script} {arguments:?}: {}\n{text}", String::from_utf8_lossy(&out.stderr));
    Some(text)
}

/// The number in front of a word in the last line: "100 datagrams, 129 frames, 8 combinations checked".
fn counted(text: &str, what: &str) -> usize {
    let line = text.lines().last().unwrap_or_default();
    line.split(", ").find_map(|part| part.strip_suffix(what)?.trim().parse().ok()).unwrap_or_else(|| panic!("no {what} in {line:?}"))
}

fn capture() -> String {
    root().join("docs/spec/capture.txt").to_str().unwrap().to_owned()
}

#[test]
fn a_decoder_written_from_the_pages_reads_every_vector() {
    if let Some(text) = python("check_format.py", &[]) {
        assert_eq!(text.matches("as specified").count(), 3, "{text}");
    }
}

/// Keys, sealed packets and codes, computed by Python's libraries from what the pages say.
#[test]
fn what_the_pages_say_of_keys_and_codes_gives_the_vectors() {
    let has_ciphers = Command::new("python3").args(["-c", "import cryptography"]).output().is_ok_and(|out| out.status.success());
    if !has_ciphers {
        eprintln!("*** SKIPPED: there is no python3 with the module cryptography here");
    }
    for (script, least) in [("check_vectors.py", 2), ("check_code.py", 1)] {
        if (has_ciphers || script == "check_code.py")
            && let Some(text) = python(script, &[])
        {
            assert!(text.matches("as specified").count() >= least, "{script}: {text}");
        }
    }
}

#[test]
fn a_decoder_written_from_the_pages_reads_a_capture() {
    let Some(text) = python("decode.py", &[&capture()]) else { return };
    for word in ["INITIATE", "RETRY", "RESPOND", "FINISH", "FLOW_OPEN", "CODED", "ACK", "CREDIT", "FLOW_END", "CLOSE"] {
        assert!(text.contains(word), "no {word} in capture.txt");
    }
    assert!(counted(&text, "combinations checked") > 0, "no combination was compared with what it is made of");
}

#[test]
fn a_decoder_written_from_the_pages_reads_what_the_program_sends() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("capture.txt");
    let file = file.to_str().unwrap();
    if python("capture.py", &[env!("CARGO_BIN_EXE_noctule"), file, "0"]).is_some() {
        assert!(counted(&python("decode.py", &[file]).unwrap(), "frames") > 20);
    }
}

#[test]
fn wireshark_finds_the_same_frames_in_the_capture_as_the_decoder() {
    let directory = tempfile::tempdir().unwrap();
    let pcap = directory.path().join("capture.pcap");
    let Some(decoded) = python("decode.py", &[&capture()]) else { return };
    python("decode.py", &[&capture(), pcap.to_str().unwrap()]).unwrap();
    let script = format!("lua_script:{}", root().join("packaging/wireshark/noctule.lua").display());
    let fields = |name: &str| {
        let read = |pcap: &Path| Command::new("tshark").args(["-X", &script, "-T", "fields", "-e", name, "-r"]).arg(pcap).output();
        read(&pcap).ok().map(|out| {
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            String::from_utf8_lossy(&out.stdout).into_owned()
        })
    };
    let Some(frames) = fields("noctule.frame") else {
        eprintln!("*** SKIPPED: there is no tshark here");
        return;
    };
    assert_eq!(fields("_ws.expert.message").unwrap().trim(), "", "malformed");
    assert_eq!(frames.split([',', '\n']).filter(|f| !f.is_empty()).count(), counted(&decoded, "frames"));
}
