//! What is there of a manifest's entries, and what can be refused: looked at before the first byte is written.

use super::SMALL;
use super::deleting::{Deleting, Extra, extras};
use super::entries::Entries;
use super::entry::{Entry, Kind};
use super::hashing::{Comparing, hash_file};
use super::manifest::Manifest;
use super::ours::Seen;
use super::receive::Destination;
use super::shares::Place;
use super::slots::{Slot, Slots};
use super::staging::Staging;
use super::target::{Parents, Refused, Target, There};
use super::wire::{Have, Hello, Plan, Refusal};
use super::writer::{Counts, Job, Sink, protocol};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Partial files that are held open between survey and their turn: no sender writes more at a time.
const HELD_OPEN: usize = super::wire::MAX_STREAMS as usize;
/// Bytes of memory that what is known of one entry takes at most, in its slot and in the plan.
const PER_KNOWN: usize = 256;
/// Bytes of memory that deleting takes for each name.
const PER_NAME: usize = 64;
/// Memory is accounted for after so many entries.
const ACCOUNT_EVERY: u64 = 1024;

/// What is there of a manifest's entries.
#[derive(Default)]
struct Survey {
    slots: Slots,
    plan: Plan,
    failed: Vec<(u64, Refused)>,
    /// Files that are newer here, and stay.
    newer: u64,
    /// Bytes that need no room any more.
    here: u64,
    held_open: usize,
}

/// A transfer that may begin.
pub struct Prepared {
    /// Shared by everything that writes.
    pub job: Job,
    /// What the sender is told.
    pub plan: Plan,
    /// Entries that fail alone, already.
    pub failed: Vec<(u64, Refused)>,
    /// Files that are newer here: no content comes for them.
    pub newer: u64,
    /// What would be deleted, in a dry run.
    pub extras: Vec<Extra>,
    /// What was said first.
    pub hello: Hello,
}

impl Survey {
    fn entry(
        &mut self,
        target: &Target,
        staging: Option<&Staging>,
        index: u64,
        entry: &Entry,
        is_dry: bool,
        look: &mut Look<'_>,
    ) -> Result<(), Refused> {
        let path = entry.as_path();
        let refused = |e: &io::Error| Refused::from_io(path, e);
        let nothing = Have { is_in_place: false, is_other: false, is_newer: false, is_untold: true, length: 0, hash: blake3::hash(&[]) };
        if look.is_update
            && matches!(entry.kind, Kind::File(_))
            && let Some(seen) = target.newer(entry, &mut look.parents)
        {
            target.settle(index, path, seen)?;
            self.plan.push((index, Have { is_newer: true, ..nothing }));
            self.slots.set(index, Slot::Newer);
            (self.newer, self.here) = (self.newer + 1, self.here + entry.size());
            return Ok(());
        }
        match target.look(entry, &mut look.parents)? {
            There::Nothing => {
                look.parents.check_writable(&target.dir, path).map_err(|e| refused(&e))?;
                if entry.size() > SMALL && self.held_open < HELD_OPEN {
                    self.partial(staging, index, entry, look).map_err(|e| refused(&e))?;
                }
            }
            There::SameSize(_) if is_dry => self.plan.push((index, Have { is_in_place: true, length: entry.size(), ..nothing })),
            There::SameSize(file) => {
                let id = Seen::of(&file).map_err(|e| refused(&e))?;
                if target.may_replace(entry, &mut look.parents) {
                    look.comparing.total.fetch_add(entry.size(), Relaxed);
                    let (hasher, length) = hash_file(&file, entry.size(), look.comparing).map_err(|e| refused(&e))?;
                    let hash = hasher.finalize();
                    if length == entry.size() {
                        self.plan.push((index, Have { is_in_place: true, is_untold: false, length, hash, ..nothing }));
                        self.slots.set(index, Slot::InPlace(hash, id));
                    } else {
                        self.slots.set(index, Slot::Replace);
                    }
                } else {
                    // Whether it is the same is found out when the sender has said what it has: nobody learns here what lies there.
                    self.plan.push((index, Have { is_in_place: true, length: entry.size(), ..nothing }));
                    self.slots.set(index, Slot::Existing);
                }
                self.here += entry.size();
            }
            There::Wanted if is_dry => self.plan.push((index, Have { is_in_place: true, ..nothing })),
            There::Wanted => {}
            There::Other if is_dry => self.plan.push((index, Have { is_other: true, ..nothing })),
            There::Other if target.may_replace(entry, &mut look.parents) => {
                look.parents.check_writable(&target.dir, path).map_err(|e| refused(&e))?;
                self.slots.set(index, Slot::Replace);
            }
            There::Other => {
                let text = if entry.kind == Kind::Dir { "exists and is no directory" } else { "exists already" };
                return Err(Refused::new(Refusal::Exists, path, text));
            }
        }
        Ok(())
    }

    fn partial(&mut self, staging: Option<&Staging>, index: u64, entry: &Entry, look: &Look<'_>) -> io::Result<()> {
        let Some((grown, length)) = staging.map(|s| s.left_in_order(entry)).transpose()?.flatten() else { return Ok(()) };
        look.comparing.total.fetch_add(length, Relaxed);
        let (hasher, hashed) = hash_file(&grown.file, length, look.comparing)?;
        if hashed == length {
            let have = Have { is_in_place: false, is_other: false, is_newer: false, is_untold: false, length, hash: hasher.finalize() };
            self.plan.push((index, have));
            self.here += length;
            self.held_open += 1;
            self.slots.set(index, Slot::Partial(length, Box::new(hasher), grown));
        }
        Ok(())
    }
}

/// What looking needs.
struct Look<'a> {
    parents: Parents,
    is_update: bool,
    comparing: &'a Comparing,
}

fn survey(
    target: &Target,
    staging: Option<&Staging>,
    entries: &Entries,
    beside: usize,
    hello: &Hello,
    place: &mut Place,
    comparing: &Comparing,
) -> Result<Survey, Refused> {
    entries.iter().try_for_each(|e| target.check_entry(&e))?;
    let mut look = Look { parents: Parents::default(), is_update: hello.is_update, comparing };
    let mut survey = Survey::default();
    for (index, entry) in (0..).zip(entries.iter()) {
        comparing.check().map_err(|e| Refused::from_io(Path::new("."), &e))?;
        if let Err(refused) = survey.entry(target, staging, index, &entry, hello.is_dry, &mut look) {
            survey.slots.set(index, Slot::Refused);
            survey.failed.push((index, refused));
        }
        if index % ACCOUNT_EVERY == 0 {
            place.hold(entries.memory() + beside + (survey.slots.known() + survey.failed.len()) * PER_KNOWN)?;
        }
    }
    Ok(survey)
}

/// Makes the directories that are missing, noted so that they get their attributes at the end even if that is another try.
fn make_dirs(target: &Target, staging: &Staging, entries: &Entries, survey: &mut Survey) {
    let mut parents = Parents::default();
    for (index, entry) in (0..).zip(entries.iter()).filter(|(_, e)| e.kind == Kind::Dir) {
        if survey.slots.is_refused(index) || target.dir.is_dir(entry.as_path()) {
            continue;
        }
        let mut make = || -> io::Result<()> {
            parents.make(&target.dir, entry.as_path())?;
            staging.note_dir(&entry.path)?;
            target.dir.create_dir_all(entry.as_path())
        };
        if let Err(e) = make() {
            survey.slots.set(index, Slot::Refused);
            survey.failed.push((index, Refused::from_io(entry.as_path(), &e)));
        }
    }
}

/// Prepares everything that needs the disk. Blocks.
///
/// # Errors
/// A name that is refused whatever is there, too little room, the staging directory.
pub fn prepare(destination: Destination, manifest: Manifest, comparing: Arc<Comparing>) -> Result<Prepared, Refused> {
    let Manifest { hello, entries, id, attributes, filter, is_root, mut place, beside, .. } = manifest;
    let counts = Counts::default();
    let target = match destination {
        Destination::Directory(target) => target,
        Destination::Stdout(is_given) => {
            if entries.len() != 1 || !entries.has_content(0) {
                let text = "one file at a time goes to standard output (recv --stdout); use --into for more";
                return Err(Refused { refusal: Refusal::Target, path: Vec::new(), message: text.into() });
            }
            is_given.store(!hello.is_dry, Relaxed);
            let job = Job::new(entries, Slots::default(), Sink::Stdout, counts, comparing, place);
            return Ok(Prepared { job, plan: Vec::new(), failed: Vec::new(), newer: 0, extras: Vec::new(), hello });
        }
    };
    if let Some((a, b)) = entries.twins() {
        let name = entries.get(a).map(|e| e.shown()).unwrap_or_default();
        return Err(protocol(&format!("entries {a} and {b} have the same name, {name}")));
    }
    if hello.deletes && !target.rules.may_delete {
        let message = "--delete asks for what the other side does not allow; `recv` and `serve --writable` do with --allow-delete";
        return Err(Refused { refusal: Refusal::NotAllowed, path: Vec::new(), message: message.into() });
    }
    if hello.deletes {
        // Hashes of names, and the identities of the files that they lead to.
        place.hold(entries.memory() + beside + entries.len() * PER_NAME)?;
    }
    let deleting = hello.deletes.then_some(Deleting { filter, is_root });
    let of_staging = |e: io::Error| Refused::from_io(Path::new(super::entry::STAGING_NAME), &e);
    let staging = Staging::find(&target.dir, place.key(), &id).map_err(of_staging)?;
    let mut survey = survey(&target, staging.as_ref(), &entries, beside, &hello, &mut place, &comparing)?;
    if hello.is_dry {
        // Nothing will be written, so nothing is prepared for it.
        let would_delete = deleting.filter(|_| hello.is_complete && survey.failed.is_empty());
        let extras = would_delete.map_or(Ok(Vec::new()), |deleting| extras(&target, &entries, &deleting));
        let extras = extras.map_err(|e| Refused::from_io(Path::new("."), &e))?;
        let job = Job::new(entries, Slots::default(), Sink::Stdout, counts, comparing, place);
        let failed = survey.failed.iter().filter(|(_, refused)| refused.refusal != Refusal::Exists).cloned().collect();
        return Ok(Prepared { job, plan: survey.plan, failed, newer: survey.newer, extras, hello });
    }
    target.check_space(hello.bytes.saturating_sub(survey.here), hello.stored.saturating_sub(survey.here))?;
    let staging = match staging {
        Some(staging) => staging,
        None => Staging::open(&target.dir, place.key(), &id).map_err(of_staging)?,
    };
    make_dirs(&target, &staging, &entries, &mut survey);
    let Survey { slots, plan, failed, newer, .. } = survey;
    let job = Job::new(entries, slots, Sink::Directory(target, staging), counts, comparing, place);
    let job = Job { attributes, deleting: deleting.filter(|_| hello.is_complete), ..job };
    Ok(Prepared { job, plan, failed, newer, extras: Vec::new(), hello })
}
