//! `noctule send --mode brctp`: over sessions with one receiver or several, with block feedback.
//!
//! The packets go as datagrams (`btp`) whose lifetime lets the links repair what they lose; fresh packets of the outer code make up for
//! what the links give up, as the receivers' statuses ask. [`Cast`] does all that; this file settles the receivers and reports to the user.

use super::super::again::Again;
use super::super::progress::{Progress, Reporter, Summary};
use super::super::send::{Base, Reach, part};
use super::LOW_LOSS;
use super::cast::{Cast, Delivered, Invited};
use super::file::ObjectFile;
use super::look::{Look, Step};
use crate::cli::{PeerArgs, SendArgs};
use crate::failure::Failure;
use crate::identity;
use crate::tree::MAX_RECEIVERS;
use blake3::Hash;
use futures_util::future::join_all;
use noctule::PublicKey;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

/// Sends the file and waits until every receiver has verified it, or has failed.
pub async fn run(args: SendArgs) -> Result<(), Failure> {
    let unfit = [("--name", args.name.is_some()), ("--dry-run", args.dry_run), ("--parallel", args.parallel != 1)];
    let more = [
        ("--update", args.update),
        ("--delete", args.delete),
        ("--xattrs", args.xattrs.is_some()),
        ("--exclude and --include", !args.filter.rules.is_empty()),
    ];
    let unfit = unfit.into_iter().chain(more).collect::<Vec<_>>();
    if let Some((option, _)) = unfit.iter().find(|(_, is_given)| *is_given) {
        return Err(Failure::Usage(format!("{option} is for files sent without --mode brctp")));
    }
    let (name, hosts) = split(&args.words)?;
    let keys = keys(&args, &hosts)?;
    if args.peer.code.is_some() && hosts.len() > 1 {
        return Err(Failure::Usage(
            "a code is for one receiver: for several, say --to KEY for each, and let each of them --allow this side's key (noctule keygen --fingerprint shows it)".into(),
        ));
    }
    let near = Reach::from(&args);
    let config = Base::config(&near)?;
    let names = vec![name];
    let reporter = Reporter::new(args.json, false).with_patience(args.give_up.0);
    let mut look = Look::begin(move |comparing| ObjectFile::open(&names, LOW_LOSS, comparing));
    let file = loop {
        match look.next().await? {
            Step::Over(file) => break Arc::new(file?),
            Step::Under(done, total) => reporter.comparing(done, total),
        }
    };
    // The user is asked about unknown hosts before anything begins.
    let mut peers = Vec::new();
    for (host, key) in hosts.iter().zip(keys) {
        let asked = PeerArgs { peer_key: key, ..args.peer.clone() };
        peers.push(identity::Peer::far_end(host, args.port, &asked, &args.identity, &args.via).await?);
    }
    if let Some(twice) = peers.iter().enumerate().find(|(i, p)| peers[..*i].iter().any(|o| o.key == p.key)) {
        return Err(Failure::Usage(format!("{} is named twice, or has the key of another receiver", twice.1.host)));
    }
    let again = Again::new(args.give_up.0, config.node.idle_timeout);
    let base = Base::attach(&near, config).await?;
    let count = peers.len() as u64;
    let failed = persist(&args, &file, &base, hosts.into_iter().zip(peers).collect(), again, &reporter).await;
    base.leave().await;
    let mut failed = failed.map_err(|failure| failure.of_transfer(true))?;
    match failed.first() {
        None => Ok(()),
        Some(_) if count == 1 => Err(failed.remove(0).2.of_transfer(true)),
        Some((name, _, first)) => {
            let (failed, code, first) = (failed.len() as u64, first.exit_code(), format!("{name}: {first}"));
            Err(Failure::Receivers { failed, of: count, code, first })
        }
    }
}

/// Sends to all of them, and goes on with those that fell silent, until `again` gives up; those that do not have the file.
async fn persist(
    args: &SendArgs,
    file: &Arc<ObjectFile>,
    base: &Base,
    mut peers: Vec<(String, identity::Peer)>,
    mut again: Again,
    reporter: &Reporter,
) -> Result<Vec<Failed>, Failure> {
    let (near, mut over) = (Reach::from(args), Vec::new());
    loop {
        let sessions = join_all(peers.iter().map(|(_, peer)| base.reach(&near, peer))).await;
        let (mut invited, mut failed) = (Vec::new(), Vec::new());
        for ((host, peer), session) in peers.iter().zip(sessions) {
            match session {
                Ok(session) => invited.push(Invited { name: host.clone(), address: peer.overlay, session }),
                Err(failure) => failed.push((host.clone(), peer.key, failure)),
            }
        }
        if !invited.is_empty() {
            again.heard();
            failed = exchange(args, file, base, invited, failed, reporter).await?;
        }
        // A later try is for those that may be there again.
        let (mut silent, others): (Vec<Failed>, Vec<Failed>) = failed
            .into_iter()
            .partition(|(.., failure)| matches!(failure, Failure::Silence(_)) || (again.is_again() && failure.may_pass()));
        over.extend(others);
        if silent.is_empty() {
            return Ok(over);
        }
        let (name, key, failure) = silent.remove(0);
        if let Err(failure) = again.after(failure, reporter).await {
            over.push((name, key, failure));
            over.extend(silent);
            return Ok(over);
        }
        peers.retain(|(_, peer)| peer.key == key || silent.iter().any(|(_, other, _)| *other == peer.key));
        peers = peers.into_iter().map(|(host, peer)| (host, peer.proven())).collect();
        base.begin_again();
    }
}

/// FILE, and the hosts after it.
fn split(words: &[OsString]) -> Result<(OsString, Vec<String>), Failure> {
    let Some((name, hosts @ [_, ..])) = words.split_first() else { return Err(Failure::Usage("name a file and a host".into())) };
    if hosts.len() > MAX_RECEIVERS {
        return Err(Failure::Usage(format!("{} receivers; at most {MAX_RECEIVERS} at a time", hosts.len())));
    }
    // `a b host` is the default mode's form: an easy mistake here.
    if let Some(file) = hosts[..hosts.len() - 1].iter().find(|word| Path::new(word).exists()) {
        return Err(Failure::Usage(format!(
            "--mode brctp sends one file, to the hosts named after it, and {} is another file: pack them into one, or send them without --mode",
            file.display()
        )));
    }
    let host = |word: &OsString| match word.to_str() {
        Some(host) => Ok(host.to_owned()),
        None => Err(Failure::Usage(format!("{word:?} is no host: with --mode brctp one file is named, then hosts"))),
    };
    Ok((name.clone(), hosts.iter().map(host).collect::<Result<_, _>>()?))
}

/// The key that each host must have, as far as the user said it.
fn keys(args: &SendArgs, hosts: &[String]) -> Result<Vec<Option<PublicKey>>, Failure> {
    match (&args.to[..], hosts) {
        ([], [_]) => Ok(vec![args.peer.peer_key]),
        (_, [_, _, ..]) if args.peer.peer_key.is_some() => Err(Failure::Usage(
            "--peer-key is the key of one receiver: with several, say --to KEY for each, in the order of the hosts".into(),
        )),
        ([], _) if args.pinned.len() == hosts.len() => Ok(args.pinned.clone()),
        ([], _) => Ok(vec![None; hosts.len()]),
        (keys, _) if keys.len() == hosts.len() && args.peer.peer_key.is_none() => Ok(keys.iter().copied().map(Some).collect()),
        (keys, _) => Err(Failure::Usage(format!(
            "{} keys for {} hosts: say --to KEY once for each host, in their order, or leave it out for keys that are remembered",
            keys.len() + usize::from(args.peer.peer_key.is_some()),
            hosts.len()
        ))),
    }
}

type Failed = (String, PublicKey, Failure);

/// Says what comes, then sends until the receivers are done; those that do not have the file. `failed` cannot be reached.
async fn exchange(
    args: &SendArgs,
    file: &Arc<ObjectFile>,
    base: &Base,
    invited: Vec<Invited>,
    mut failed: Vec<Failed>,
    reporter: &Reporter,
) -> Result<Vec<Failed>, Failure> {
    let count = (invited.len() + failed.len()) as u64;
    let peer = match &invited[..] {
        [only] if count == 1 => only.session.peer_key().to_string(),
        // No one key.
        _ => String::new(),
    };
    let mut progress = reporter.start("sending", &peer, 1, count * file.layout.size());
    failed.iter().for_each(|(name, key, failure)| progress.receiver(name, *key, Err(&failure.to_string())));
    let gateway = match &base.gateway {
        Some(gateway) if count > 1 => Some(gateway.session().await),
        _ => None,
    };
    let mut cast = Cast::begin(file, invited, gateway, args.limit_rate.map(|rate| rate.0))?;
    while !cast.is_over() {
        if let Err(failure) = cast.step().await {
            progress.clear();
            return Err(failure);
        }
        let (there, spared) = cast.progress();
        if let Some((done, total)) = cast.comparing() {
            progress.comparing(done, total);
        }
        progress.set(there, spared);
        cast.open_sessions().for_each(|session| progress.look_at(session));
    }
    // A file that grew is not what arrived, though every hash of what was announced is right.
    let is_whole = file.check_end();
    let stats = cast.stats();
    let figures = [("source_packets", stats.source_packets), ("repair_packets", stats.repair_packets), ("receivers", count)];
    let ends = cast.end().await;
    if let Err(failure) = is_whole {
        progress.clear();
        join_all(ends.iter().map(|(_, session, _)| session.close(0, ""))).await;
        return Err(failure);
    }
    let delivered: Vec<Delivered> = ends.iter().filter_map(|(_, _, result)| result.as_ref().ok().copied()).collect();
    if delivered.len() as u64 == count {
        if count > 1 {
            ends.iter().for_each(|(name, session, _)| progress.receiver(name, session.peer_key(), Ok(())));
        }
        finish(progress, file, &delivered, &figures);
        join_all(ends.iter().map(|(_, session, _)| session.close(0, ""))).await;
        return Ok(failed);
    }
    progress.clear();
    let parting = ends.into_iter().map(async |(name, session, result)| {
        let result = part(&session, base.ours, result).await;
        (name, session.peer_key(), result)
    });
    for (name, key, result) in join_all(parting).await {
        match result {
            Err(failure) => {
                if count > 1 {
                    progress.receiver(&name, key, Err(&failure.to_string()));
                }
                failed.push((name, key, failure));
            }
            Ok(_) => progress.receiver(&name, key, Ok(())),
        }
    }
    Ok(failed)
}

/// The report of a transfer that reached all receivers.
fn finish(mut progress: Progress, file: &ObjectFile, delivered: &[Delivered], figures: &[(&str, u64)]) {
    let (size, digest) = (file.layout.size(), Hash::from_bytes(file.root.0));
    let bytes = delivered.len() as u64 * size;
    let same = delivered.iter().filter(|d| d.is_same).count() as u64;
    let resumed = delivered.iter().filter(|d| d.is_resumed()).count() as u64;
    progress.set(bytes, delivered.iter().map(|d| d.spared).sum());
    progress.file(&file.entry, digest);
    progress.done_with(&Summary { files: 1, bytes, same, resumed, newer: 0, deleted: 0, digest }, figures);
}
