//! Entry points of the fuzz targets of files and of the files that people write (`fuzz/run`); `cargo test` runs the corpus through them.
//!
//! Each has a cost oracle: bytes allocated at once, and allocations as a measure of work, stay within a bound for each byte of the input.

use allocation_counter::AllocationInfo;

/// What is allowed whatever the input, and for each byte of it.
struct Bound {
    bytes: (u64, u64),
    allocations: (u64, u64),
}

/// Runs a reader and holds it to a bound.
fn within(bound: &Bound, input: &[u8], read: impl FnOnce()) {
    let AllocationInfo { bytes_max, count_total, .. } = allocation_counter::measure(read);
    let most = |(base, each): (u64, u64)| base + each * input.len() as u64;
    assert!(bytes_max <= most(bound.bytes), "{bytes_max} bytes at once for an input of {}", input.len());
    assert!(count_total <= most(bound.allocations), "{count_total} allocations for an input of {}", input.len());
}

/// The node's file, the user's file of hosts, and the users of a proxy's file: read or refused with lines and keys named.
pub fn config(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    within(&Bound { bytes: (256 << 10, 512), allocations: (4000, 64) }, input, || {
        if let Err(complaints) = crate::daemon::config::parse(&text) {
            assert!(!complaints.to_string().is_empty(), "what is wrong is said");
        }
        crate::host_config::check(&text);
        if let Err((_, why)) = crate::proxy::users::read(&text) {
            assert!(!why.is_empty(), "what is wrong is said");
        }
    });
}

/// Lists of keys: those remembered of hosts, and those that may connect.
pub fn keys(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    within(&Bound { bytes: (64 << 10, 128), allocations: (1000, 32) }, input, || {
        crate::identity::authorised::check(&text);
        crate::identity::known_hosts::check(&text);
    });
}

/// What programs, servers in front and the other end say to a proxy, and what it has kept of quotas: read, refused, or waited for; what is read is the same
/// once it is written.
pub fn proxy(input: &[u8]) {
    use futures_util::FutureExt;
    use noctule_proxy::wire::{Record, emit_datagram, parse_datagram};
    use noctule_proxy::{Bind, Forward, Pattern, Usage, http, proxy_protocol, socks};
    use std::collections::BTreeMap;
    within(&Bound { bytes: (64 << 10, 64), allocations: (200, 16) }, input, || {
        if let Ok((record, len)) = Record::parse(input) {
            assert!(len <= input.len());
            let mut again = Vec::new();
            record.emit(&mut again);
            assert_eq!(Record::parse(&again), Ok((record, again.len())));
        }
        if let Ok((target, data)) = parse_datagram(input) {
            assert_eq!(parse_datagram(&emit_datagram(target.as_ref(), data)), Ok((target, data)));
        }
        let _ = (socks::greeting(input), socks::request(input), socks::request4(input), socks::datagram(input), http::parse(input));
        let mut rest = input;
        if let Some(Ok(Some(from))) = proxy_protocol::read(&mut rest).now_or_never() {
            let again = proxy_protocol::header(Some(from), from);
            assert_eq!(proxy_protocol::read(&mut &again[..]).now_or_never().and_then(Result::ok), Some(Some(from)));
        }
        if let Ok(kept) = serde_json::from_slice::<BTreeMap<String, Usage>>(input) {
            let again = serde_json::to_vec(&kept).expect("what was read");
            assert_eq!(serde_json::from_slice::<BTreeMap<String, Usage>>(&again).ok(), Some(kept));
        }
        if let Ok(text) = str::from_utf8(input) {
            if let Ok(forward) = text.parse::<Forward>() {
                assert_eq!(forward.to_string().parse(), Ok(forward));
            }
            if let Ok(pattern) = text.parse::<Pattern>() {
                assert_eq!(pattern.to_string().parse(), Ok(pattern));
            }
            let _ = text.parse::<Bind>();
            if let Ok(link) = text.parse::<crate::proxy::link::Link>() {
                assert_eq!(link.to_string().parse(), Ok(link));
            }
        }
    });
}

/// A transfer from a sender that sends any records, into a directory of its own, or a request of any kind to such a directory; nothing of it may be left or
/// found outside.
pub fn transfer(input: &[u8]) {
    let root = std::env::temp_dir().join(format!("noctule-fuzz-{}-{:?}", std::process::id(), std::thread::current().id()));
    let target = root.join("in");
    std::fs::create_dir_all(&target).expect("a directory for the files");
    // What a request may find.
    if input.first().is_some_and(|options| options & 16 != 0) {
        std::fs::create_dir_all(target.join("d/.hidden")).expect("a directory");
        std::fs::write(target.join("d/f.c"), "f").expect("a file");
        std::os::unix::fs::symlink("..", target.join("up")).expect("a link");
    }
    let bound = match input.first().is_some_and(|options| options & 16 != 0) {
        // What patterns are compiled to.
        true => Bound { bytes: (32 << 20, 64 << 10), allocations: (100_000, 4096) },
        // Buffers and hashers of one writer, and the manifest's budget.
        false => Bound { bytes: (8 << 20, 1024), allocations: (8000, 128) },
    };
    within(&bound, input, || crate::transfer::trial::fuzz(&target, input));
    let outside = std::fs::read_dir(&root).expect("the directory is there").count();
    std::fs::remove_dir_all(&root).expect("what was made can be removed");
    assert_eq!(outside, 1, "something was made outside of the directory");
}

#[cfg(test)]
mod tests {
    use super::*;

    type Target = (&'static str, fn(&[u8]));
    const TARGETS: [Target; 4] = [("config", config), ("keys", keys), ("proxy", proxy), ("transfer", transfer)];

    fn corpus(target: &str) -> Vec<Vec<u8>> {
        let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
        let mut inputs: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{target} has a corpus");
        inputs
    }

    #[test]
    fn every_input_of_the_corpus_passes_and_so_does_nothing() {
        for (target, run) in TARGETS {
            corpus(target).iter().for_each(|input| run(input));
            run(&[]);
        }
    }

    /// Bytes of the corpus changed, doubled and cut, the same each time.
    #[test]
    fn altered_inputs_pass() {
        let rounds: u64 = std::env::var("RANDOM_INPUTS").map_or(50, |n| n.parse().unwrap());
        // Numerical Recipes' linear congruential generator.
        let mut state = 1u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below.max(1)
        };
        for (target, run) in TARGETS {
            for input in corpus(target) {
                for _ in 0..rounds {
                    let mut altered = input.clone();
                    for _ in 0..1 + next(4) {
                        let at = next(altered.len());
                        match next(4) {
                            0 => altered.insert(at, next(256) as u8),
                            1 => altered.truncate(at + 1),
                            2 => altered.extend_from_within(at..),
                            _ => {
                                if let Some(byte) = altered.get_mut(at) {
                                    *byte = next(128) as u8;
                                }
                            }
                        }
                    }
                    run(&altered);
                }
            }
        }
    }
}
