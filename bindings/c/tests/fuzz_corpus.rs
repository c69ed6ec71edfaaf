//! The inputs that fuzzing found worth keeping run through the same entry point here, so that they never rot (`fuzz/run`).

#[path = "../../../fuzz/entries/c/mod.rs"]
mod entries;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

static PANICS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn every_input_of_the_corpus_passes() {
    let before = std::panic::take_hook();
    // The library's threads swallow theirs.
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, SeqCst);
        before(panic);
    }));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, run) in entries::ALL {
        let mut inputs: Vec<_> = std::fs::read_dir(corpus.join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{target} has a corpus");
        for input in inputs {
            println!("{}", input.display());
            run(&std::fs::read(input).unwrap());
            assert_eq!(PANICS.load(SeqCst), 0, "a thread of the library has ended by a panic");
        }
        run(&[]);
    }
}

/// What is new in the header is to be fuzzed, too.
#[test]
fn the_target_calls_every_function_of_the_header() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(here.join("include/noctule.h")).unwrap();
    let entry = std::fs::read_to_string(here.join("../../fuzz/entries/c/c_library.rs")).unwrap();
    let functions: Vec<_> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '/']))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("noctule_"))
        .collect();
    assert!(functions.len() > 50, "{functions:?}");
    for function in functions {
        assert!(entry.contains(&format!("{function}(")), "{function} is not fuzzed");
    }
}
