//! The inputs that fuzzing found worth keeping run through the same entry points here, so that they never rot (`fuzz/run`).

#[path = "../../../fuzz/entries/codes/mod.rs"]
mod entries;

#[test]
fn every_input_of_the_corpus_passes() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, run) in entries::ALL {
        let inputs: Vec<_> = std::fs::read_dir(corpus.join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!inputs.is_empty(), "{target} has a corpus");
        for input in inputs {
            println!("{}", input.display());
            run(&std::fs::read(input).unwrap());
        }
        run(&[]);
    }
}
