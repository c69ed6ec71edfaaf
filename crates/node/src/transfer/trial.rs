//! One transfer without a network: the bytes of a sender's streams in, files out. For tests, and for fuzz targets.

use super::attributes::Kept;
use super::finish::finish;
use super::hashing::Comparing;
use super::manifest::Coming;
use super::offer::{Looking, Offer};
use super::receive::{Destination, Stop};
use super::shares::{Limits, Shares};
use super::survey::prepare;
use super::target::{Refused, Rules, Target};
use super::wire::{Plan, Record, split};
use super::writer::{Event, Writer, protocol};
use blake3::Hash;
use bytes::BytesMut;
use noctule::PublicKey;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// What a receiver made of it.
#[derive(Debug, Default)]
pub struct Ended {
    /// Told to the sender first.
    pub plan: Plan,
    /// In place and verified.
    pub stored: Vec<(u64, Hash)>,
    /// Not there.
    pub failed: Vec<(u64, Refused)>,
    /// Steps of the writer.
    pub steps: u64,
}

/// A receiver.
pub struct Trial<'a> {
    /// Where to.
    pub directory: &'a Path,
    /// The sender's key.
    pub sender: PublicKey,
    /// What it may do.
    pub rules: Rules,
    /// How much it may take.
    pub limits: Limits,
}

impl Trial<'_> {
    /// Receives a control stream and one data stream.
    ///
    /// # Errors
    /// All of it was refused.
    pub fn receive(&self, control: &[u8], data: &[u8]) -> Result<Ended, Refused> {
        let target = Target::open(self.directory, self.rules).map_err(|e| Refused::from_io(self.directory, &e))?;
        let place = Shares::new(self.limits).enter(self.sender)?;
        let mut control = BytesMut::from(control);
        let mut next = || match split(&mut control) {
            Ok(record) => record.ok_or_else(|| protocol("the stream ends")),
            Err(e) => Err(protocol(&e.to_string())),
        };
        let Record::Hello(hello) = next()? else { return Err(protocol("no greeting")) };
        let mut coming = Coming::new(hello, place).map_err(refusal)?;
        while !coming.is_complete() {
            coming.take(next()?).map_err(refusal)?;
        }
        let manifest = coming.end().map_err(refusal)?;
        let prepared = prepare(Destination::Directory(target), manifest, Arc::new(Comparing::default()))?;
        let mut ended = Ended { plan: prepared.plan, failed: prepared.failed, ..Ended::default() };
        if prepared.hello.is_dry {
            return Ok(ended);
        }
        let job = Arc::new(prepared.job);
        let (events, mut told) = mpsc::unbounded_channel();
        let mut writer = Writer::new(Arc::clone(&job), events);
        writer.feed(BytesMut::from(data));
        loop {
            ended.steps += 1;
            if !writer.step()? {
                break;
            }
        }
        drop(writer);
        while let Ok(event) = told.try_recv() {
            match event {
                Event::Stored(index, hash) => ended.stored.push((index, hash)),
                Event::Failed(index, refused) => ended.failed.push((index, refused)),
                Event::Fatal(refused) => return Err(refused),
            }
        }
        let contents = (0..job.entries.len() as u64).filter(|i| job.entries.has_content(*i)).count();
        let came = ended.stored.len() + ended.failed.iter().filter(|(i, _)| job.entries.has_content(*i)).count();
        // A sender that breaks off keeps what it has sent.
        if came == contents {
            ended.failed.extend(finish(&job, ended.failed.is_empty())?.failed);
        }
        Ok(ended)
    }
}

fn refusal(stop: Stop) -> Refused {
    match stop {
        Stop::Refused(refused) => refused,
        _ => protocol("the transfer ended"),
    }
}

/// A transfer of any bytes into a directory: a byte of options, two that say how long the control stream is, then that and the data stream.
pub fn fuzz(directory: &Path, input: &[u8]) {
    let [options, high, low, rest @ ..] = input else { return };
    if options & 16 != 0 {
        return ask(directory, rest);
    }
    let (control, data) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])).min(rest.len()));
    let (overwrite, outside_links) = (options & 1 != 0, options & 2 != 0);
    let (may_delete, kept) = (options & 4 != 0, if options & 8 != 0 { Kept::Security } else { Kept::None });
    let rules = Rules { overwrite, outside_links, may_delete, kept, most: Some(1 << 20), ..Rules::default() };
    let limits = Limits { memory: 1 << 20, entries: 1000, ..Limits::default() };
    let _ = Trial { directory, sender: PublicKey([options >> 6; 32]), rules, limits }.receive(control, data);
}

/// A request of any bytes to a directory that offers a little; nothing outside of it is found.
fn ask(directory: &Path, input: &[u8]) {
    let limits = Limits { memory: 1 << 20, entries: 1000, ..Limits::default() };
    let (Ok(offer), Ok(mut place)) = (Offer::open(directory), Shares::new(limits).enter(PublicKey([7; 32]))) else { return };
    if let Ok(Some(Record::Request(request))) = split(&mut BytesMut::from(input))
        && let Ok(sources) = offer.gather(None, &request, &mut place, &Looking::default())
    {
        for item in sources.items {
            let local = item.local();
            assert!(local.is_relative() && !local.iter().any(|part| part == ".."), "{}", local.display());
            assert!(item.entry.check_name().is_ok());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entry::{Entry, Kind, Mtime};
    use super::super::ours::Seen;
    use super::super::target::Placed;
    use super::super::wire::{Hello, Refusal, VERSION};
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    const A: PublicKey = PublicKey([1; 32]);
    const B: PublicKey = PublicKey([2; 32]);

    fn entry(name: &str, kind: Kind, mode: u32) -> Entry {
        Entry { path: name.into(), kind, mode, mtime: Mtime { seconds: 1_700_000_000, nanos: 0 } }
    }

    fn file(name: &str, content: &[u8]) -> Entry {
        entry(name, Kind::File(content.len() as u64), 0o644)
    }

    fn bytes(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        records.iter().for_each(|r| r.emit(&mut out));
        out
    }

    fn hello(entries: &[Entry], stored: u64) -> Record {
        let bytes = entries.iter().map(Entry::size).sum();
        Record::Hello(Hello { version: VERSION, entries: entries.len() as u64, bytes, stored, streams: 1, ..Hello::default() })
    }

    fn small(index: u64, content: &[u8]) -> Record {
        Record::Small { index, hash: blake3::hash(content), content: content.to_vec().into() }
    }

    fn content(index: u64, offset: u64, content: &[u8], whole: &[u8]) -> Vec<Record> {
        let mut records = vec![Record::File { index, offset }];
        records.extend(content.chunks(50_000).map(|c| Record::Data(c.to_vec().into())));
        records.push(Record::End { hash: blake3::hash(whole), problem: String::new() });
        records
    }

    struct Room(tempfile::TempDir);

    impl Room {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn trial(&self, sender: PublicKey, overwrite: bool) -> Trial<'_> {
            Trial { directory: self.0.path(), sender, rules: Rules { overwrite, ..Rules::default() }, limits: Limits::default() }
        }

        fn receive(&self, sender: PublicKey, overwrite: bool, entries: &[Entry], data: &[Record]) -> Result<Ended, Refused> {
            let control = bytes(&[hello(entries, 0), Record::Entries(entries.to_vec())]);
            self.trial(sender, overwrite).receive(&control, &bytes(data))
        }

        fn read(&self, name: &str) -> Vec<u8> {
            fs::read(self.0.path().join(name)).unwrap()
        }

        fn mode(&self, name: &str) -> u32 {
            fs::metadata(self.0.path().join(name)).unwrap().mode() & 0o7777
        }
    }

    fn whole() -> Vec<u8> {
        (0..1_000_000u32).map(|i| ((i * 7) >> 3) as u8).collect()
    }

    /// S1: 14 bytes kept a thread busy for 35 years.
    #[test]
    fn hole_that_does_not_fit_is_refused_before_anything_is_hashed() {
        let room = Room::new();
        let bomb = [entry("bomb", Kind::File((1 << 62) - 1), 0o644)];
        let records = [Record::File { index: 0, offset: 0 }, Record::Hole((1 << 62) - 1)];
        let refused = room.receive(A, false, &bomb, &records).unwrap_err();
        assert!(refused.refusal == Refusal::DiskFull && refused.message.contains("--max-size"), "{refused:?}");
        // Said to be allowed: then the file system refuses its length, in the first step.
        let mut trial = room.trial(A, false);
        trial.rules.most = Some(u64::MAX);
        let ended = trial.receive(&bytes(&[hello(&bomb, 0), Record::Entries(bomb.to_vec())]), &bytes(&records));
        assert!(ended.as_ref().is_err() || ended.as_ref().is_ok_and(|e| e.failed.len() == 1 && e.steps <= 2), "{ended:?}");
        assert!(fs::read_dir(room.0.path().join(".noctule-partial")).unwrap().all(|e| e.unwrap().metadata().unwrap().len() == 0));
        // Half a gibibyte is hashed in pieces, between which others have their turn.
        let hole = [entry("hole", Kind::File(512 << 20), 0o644)];
        let mut records = vec![Record::File { index: 0, offset: 0 }, Record::Hole(512 << 20)];
        let mut hasher = blake3::Hasher::new();
        for _ in 0..512 {
            hasher.update(&[0; 1 << 20]);
        }
        records.push(Record::End { hash: hasher.finalize(), problem: String::new() });
        let ended = trial.receive(&bytes(&[hello(&hole, 0), Record::Entries(hole.to_vec())]), &bytes(&records)).unwrap();
        assert!(ended.stored.len() == 1 && ended.steps >= 32, "{ended:?}");
        assert!(fs::metadata(room.0.path().join("hole")).unwrap().blocks() < 100);
    }

    /// S3: what another sender wrote into a partial file was placed under the right hash.
    #[test]
    fn what_one_sender_left_is_neither_told_to_nor_touched_by_another() {
        let (room, whole) = (Room::new(), whole());
        let entries = [file("f", &whole)];
        let broken_off: Vec<Record> = content(0, 0, &whole[..600_000], &whole).drain(..13).collect();
        room.receive(A, false, &entries, &broken_off).unwrap();
        let lies: Vec<Record> = content(0, 0, &[b'X'; 600_000], &whole).drain(..13).collect();
        let other = room.receive(B, false, &entries, &lies).unwrap();
        assert!(other.plan.is_empty(), "{:?}", other.plan);
        let resumed = room.receive(A, false, &entries, &content(0, 600_000, &whole[600_000..], &whole)).unwrap();
        assert_eq!(resumed.plan[0].1.length, 600_000);
        assert_eq!(resumed.stored, [(0, blake3::hash(&whole))]);
        assert!(room.read("f") == whole);
    }

    /// A partial file that was altered on this host does not get the name either.
    #[test]
    fn file_is_verified_from_its_descriptor_before_it_gets_its_name() {
        let (room, whole) = (Room::new(), whole());
        let entries = [file("f", &whole)];
        let broken_off: Vec<Record> = content(0, 0, &whole[..600_000], &whole).drain(..13).collect();
        room.receive(A, false, &entries, &broken_off).unwrap();
        let target = Target::open(room.0.path(), Rules::default()).unwrap();
        let place = Shares::new(Limits::default()).enter(A).unwrap();
        let Record::Hello(greeting) = hello(&entries, 0) else { unreachable!() };
        let mut coming = Coming::new(greeting, place).map_err(refusal).unwrap();
        coming.take(Record::Entries(entries.to_vec())).map_err(refusal).unwrap();
        let manifest = coming.end().map_err(refusal).unwrap();
        let job = Arc::new(prepare(Destination::Directory(target), manifest, Arc::default()).unwrap().job);
        for part in fs::read_dir(room.0.path().join(".noctule-partial")).unwrap() {
            let part = fs::OpenOptions::new().write(true).open(part.unwrap().path()).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&part, b"altered", 1000).unwrap();
        }
        let (events, mut told) = mpsc::unbounded_channel();
        let mut writer = Writer::new(job, events);
        writer.feed(BytesMut::from(&bytes(&content(0, 600_000, &whole[600_000..], &whole))[..]));
        while writer.step().unwrap() {}
        assert!(matches!(told.try_recv(), Ok(Event::Failed(0, refused)) if refused.refusal == Refusal::Hash));
        assert!(!room.0.path().join("f").exists());
    }

    /// S18: three harmless-looking transfers changed the mode of a directory that was there before.
    #[test]
    fn nothing_leads_into_the_staging_directory_and_foreign_directories_keep_their_modes() {
        let room = Room::new();
        let private = room.0.path().join("private");
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        for (name, to) in [("l", ".noctule-partial"), ("d/l", "../.noctule-partial"), ("l", "./.noctule-partial/x")] {
            let refused = room.receive(A, false, &[entry(name, Kind::Link(to.into()), 0o777)], &[]).unwrap_err();
            assert!(refused.refusal == Refusal::Name && refused.message.contains("own directory"), "{refused:?}");
        }
        for name in [".noctule-partial/x", "d/.noctule-partial/x", "d/.noctule-partial"] {
            let refused = room.receive(A, false, &[file(name, b"x")], &[small(0, b"x")]).unwrap_err();
            assert_eq!(refused.refusal, Refusal::Name);
        }
        // A link that lies there already.
        fs::create_dir(room.0.path().join(".noctule-partial")).unwrap();
        fs::set_permissions(room.0.path().join(".noctule-partial"), fs::Permissions::from_mode(0o700)).unwrap();
        symlink(".noctule-partial", room.0.path().join("l")).unwrap();
        let ended = room.receive(A, false, &[file("l/x", b"x")], &[small(0, b"x")]).unwrap();
        assert_eq!((ended.stored.len(), ended.failed.len()), (0, 1));
        let directory = [entry("private", Kind::Dir, 0o777)];
        room.receive(A, true, &directory, &[]).unwrap();
        assert_eq!(room.mode("private"), 0o700);
    }

    /// S23.
    #[test]
    fn modes_lose_what_the_umask_takes_and_write_permission_of_others() {
        let room = Room::new();
        let entries = [entry("d", Kind::Dir, 0o777), entry("d/f", Kind::File(1), 0o777), entry("d/g", Kind::File(1), 0o664)];
        room.receive(A, false, &entries, &[small(1, b"f"), small(2, b"g")]).unwrap();
        assert_eq!(["d", "d/f", "d/g"].map(|n| room.mode(n)), [0o755, 0o755, 0o644]);
        let kept = Room::new();
        let mut trial = kept.trial(A, false);
        trial.rules.masked = 0;
        trial.receive(&bytes(&[hello(&entries, 0), Record::Entries(entries.to_vec())]), &bytes(&[small(1, b"f"), small(2, b"g")])).unwrap();
        assert_eq!(["d", "d/f", "d/g"].map(|n| kept.mode(n)), [0o777, 0o777, 0o664]);
    }

    /// S35: the hash of a file that its sender may not replace was in the plan.
    #[test]
    fn what_lies_there_is_not_told_and_only_the_same_content_counts_as_done() {
        let room = Room::new();
        fs::write(room.0.path().join("f"), b"secret").unwrap();
        let entries = [file("f", b"guess!"), file("g", b"new")];
        let ended =
            room.receive(B, false, &entries, &[Record::Same { index: 0, hash: blake3::hash(b"guess!") }, small(1, b"new")]).unwrap();
        let [(0, have)] = ended.plan[..] else { panic!("{:?}", ended.plan) };
        assert!(have.is_in_place && have.is_untold && have.hash == blake3::hash(b""));
        // A file that exists already fails alone: the other is stored.
        assert!(ended.failed[0].1.refusal == Refusal::Exists && ended.stored == [(1, blake3::hash(b"new"))]);
        // The very content, with another time: done (F11), by hash alone and with the content.
        let entries = [file("f", b"secret")];
        for record in [Record::Same { index: 0, hash: blake3::hash(b"secret") }, small(0, b"secret")] {
            let ended = room.receive(B, false, &entries, &[record]).unwrap();
            assert_eq!((ended.stored.len(), ended.failed.len()), (1, 0));
        }
        // A sender that may replace the file may know its hash.
        let ended = room.receive(A, true, &entries, &[small(0, b"secret")]).unwrap();
        assert_eq!(ended.plan[0].1.hash, blake3::hash(b"secret"));
    }

    /// F1: what this transfer has put in place is never replaced by this transfer. Hard links simulate a target that takes several names for one.
    #[test]
    fn names_that_are_one_at_the_target_fail_and_name_each_other() {
        let room = Room::new();
        fs::write(room.0.path().join("README"), b"one").unwrap();
        fs::hard_link(room.0.path().join("README"), room.0.path().join("readme")).unwrap();
        let entries = [file("README", b"one"), file("readme", b"two")];
        let ended = room.receive(A, true, &entries, &[Record::Same { index: 0, hash: blake3::hash(b"one") }, small(1, b"two")]).unwrap();
        assert_eq!(ended.stored, [(0, blake3::hash(b"one"))]);
        let (1, refused) = &ended.failed[0] else { panic!("{:?}", ended.failed) };
        assert!(refused.refusal == Refusal::Name && refused.message.contains("README"), "{refused:?}");
        assert_eq!(room.read("README"), b"one");
        // A name that was free when the transfer began is never replaced, with --overwrite either.
        let target = Target::open(room.0.path(), Rules { overwrite: true, ..Rules::default() }).unwrap();
        let staging = super::super::staging::Staging::open(&target.dir, A, &blake3::hash(b"m")).unwrap();
        let placed = target.place(&staging, &staging.create().unwrap(), 7, Path::new("README"), false, &mut Default::default());
        assert!(placed.is_err_and(|r| r.refusal == Refusal::Exists));
        assert_eq!(room.read("README"), b"one");
        // What was compared and is not there any more is not in place: an entry with another name for the same may have replaced it.
        let compared = Seen::of(&fs::File::open(room.0.path().join("README")).unwrap()).unwrap();
        let target = Target::open(room.0.path(), Rules { overwrite: true, ..Rules::default() }).unwrap();
        let mut grown = staging.create().unwrap();
        grown.file.write_all(b"six").unwrap();
        let placed = target.place(&staging, &grown, 6, Path::new("README"), true, &mut Default::default());
        assert_eq!(placed.unwrap(), Placed::There);
        assert_eq!(target.settle(7, Path::new("README"), compared).unwrap(), Placed::OneNameWith(6));
        fs::write(room.0.path().join("moved"), b"another").unwrap();
        fs::rename(room.0.path().join("moved"), room.0.path().join("README")).unwrap();
        assert!(target.settle(7, Path::new("README"), compared).is_err_and(|r| r.message.contains("another file")));
    }

    #[test]
    fn part_that_could_not_be_placed_stays_whole_for_the_next_try() {
        let (room, whole) = (Room::new(), whole());
        let entries = [file("f", &whole)];
        let control = bytes(&[hello(&entries, 0), Record::Entries(entries.to_vec())]);
        let target = Target::open(room.0.path(), Rules::default()).unwrap();
        let place = Shares::new(Limits::default()).enter(A).unwrap();
        let Record::Hello(greeting) = hello(&entries, 0) else { unreachable!() };
        let mut coming = Coming::new(greeting, place).map_err(refusal).unwrap();
        coming.take(Record::Entries(entries.to_vec())).map_err(refusal).unwrap();
        let job = prepare(Destination::Directory(target), coming.end().map_err(refusal).unwrap(), Arc::default()).unwrap().job;
        let (events, mut told) = mpsc::unbounded_channel();
        let mut writer = Writer::new(Arc::new(job), events);
        writer.feed(BytesMut::from(&bytes(&content(0, 0, &whole, &whole))[..]));
        // Another program takes the name at the last moment.
        fs::write(room.0.path().join("f"), b"in the way").unwrap();
        while writer.step().unwrap() {}
        assert!(matches!(told.try_recv(), Ok(Event::Failed(0, refused)) if refused.refusal == Refusal::Exists));
        drop(writer);
        fs::remove_file(room.0.path().join("f")).unwrap();
        let resumed = room.trial(A, false).receive(&control, &bytes(&content(0, 1_000_000, &[], &whole))).unwrap();
        assert_eq!((resumed.plan[0].1.length, resumed.stored.len()), (1_000_000, 1));
        assert!(room.read("f") == whole);
    }

    /// Altered transfers, the same each time (`RANDOM_INPUTS` times): no panic, and nothing outside of the directory.
    #[test]
    fn transfers_of_altered_bytes_stay_in_their_directory() {
        let rounds = std::env::var("RANDOM_INPUTS").map_or(300, |n| n.parse().unwrap());
        let room = Room::new();
        let inside = room.0.path().join("in");
        fs::create_dir(&inside).unwrap();
        let entries = [
            entry("d", Kind::Dir, 0o755),
            file("d/f", b"small"),
            entry("d/hole", Kind::File(1 << 18), 0o600),
            entry("l", Kind::Link(b"d/f".to_vec()), 0o777),
        ];
        let control = bytes(&[hello(&entries, 0), Record::Entries(entries.to_vec())]);
        let mut zeros = vec![small(1, b"small"), Record::File { index: 2, offset: 0 }, Record::Hole(1 << 18)];
        zeros.push(Record::End { hash: blake3::hash(&vec![0; 1 << 18]), problem: String::new() });
        let mut whole = vec![1];
        whole.extend((control.len() as u16).to_be_bytes());
        whole.extend([control, bytes(&zeros)].concat());
        fuzz(&inside, &whole);
        assert_eq!(fs::read(inside.join("l")).unwrap(), b"small");
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut below = |n: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % n
        };
        for _ in 0..rounds {
            let mut altered = whole.clone();
            for _ in 0..=below(3) {
                let at = below(altered.len());
                altered[at] ^= 1 << below(8);
            }
            fuzz(&inside, &altered);
        }
        assert_eq!(fs::read_dir(room.0.path()).unwrap().count(), 1);
    }

    #[test]
    fn one_name_twice_in_a_manifest_is_refused() {
        let room = Room::new();
        let refused = room.receive(A, false, &[file("f", b"1"), file("g", b"2"), file("f", b"1")], &[]).unwrap_err();
        assert!(refused.message.contains("the same name"), "{refused:?}");
    }
}
