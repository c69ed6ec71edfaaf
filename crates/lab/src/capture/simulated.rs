//! A capture of the simulator: both ends of every link and the trace of every node, in virtual time.

use std::fs::File;
use std::io::BufWriter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pcap::Pcap;
use super::qlog::Qlog;
use super::{End, Folder, Kept, link_file};
use crate::report::Report;
use crate::scenario::Scenario;
use crate::sim::{Sighting, Simulation, TraceSink};

type Failure = Box<dyn std::error::Error>;
type Shared<T> = Arc<Mutex<T>>;

fn lock<T>(shared: &Shared<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Name of the trace of a node, counted from one.
fn node_file(node: usize) -> String {
    format!("node{}.sqlog", node + 1)
}

/// Runs a scenario, and keeps what happens in files of the folder. They are kept also if the run does not come to its end.
///
/// # Errors
/// The run cannot be made, or a file cannot be written.
pub fn run(scenario: &Scenario, folder: &Folder) -> Result<Report, Failure> {
    let mut sim = Simulation::traced(scenario)?;
    let mut links: Vec<Pcap<BufWriter<File>>> = Vec::new();
    for link in 0..sim.pipes.len() {
        for end in [End::Left, End::Right] {
            links.push(Pcap::new(folder.create(&link_file(link, end))?, folder.limit())?);
        }
    }
    let links = Arc::new(Mutex::new(links));
    let (seen, pipes) = (Arc::clone(&links), sim.pipes.clone());
    sim.world.set_tap(Box::new(move |now, sighting, from, to, ecn, data| {
        let (pipe, enters) = match sighting {
            Sighting::Leaves(pipe) | Sighting::Passes(pipe) => (pipe, true),
            Sighting::Arrives(pipe) => (pipe, false),
        };
        let Some(link) = pipes.iter().position(|&(there, back)| pipe == there || pipe == back) else { return };
        // What goes to the right enters on the left, and the other way round.
        let end = if (pipe == pipes[link].0) == enters { End::Left } else { End::Right };
        lock(&seen)[2 * link + end as usize].record(now, from, to, ecn, data);
    }));
    let mut nodes: Vec<Shared<Qlog<BufWriter<File>>>> = Vec::new();
    for id in sim.world.host_ids() {
        let name = node_file(nodes.len());
        let title = format!("node {} of a simulation, seed {}", nodes.len() + 1, scenario.seed);
        let file = Arc::new(Mutex::new(Qlog::new(folder.create(&name)?, folder.limit(), &title)?));
        let sink = Arc::clone(&file);
        sim.world.host_mut(id).trace = Some(TraceSink(Box::new(move |event| lock(&sink).put(&event))));
        nodes.push(file);
    }
    let went = sim.go();
    let mut kept: Vec<Kept> = Vec::new();
    for (i, pcap) in lock(&links).iter_mut().enumerate() {
        let name = link_file(i / 2, if i % 2 == 0 { End::Left } else { End::Right });
        kept.push(pcap.finish(&name).map_err(|error| folder.failed(&name, &error))?);
    }
    for (i, node) in nodes.iter().enumerate() {
        kept.push(lock(node).finish(&node_file(i)).map_err(|error| folder.failed(&node_file(i), &error))?);
    }
    folder.tell(&kept);
    went?;
    Ok(sim.report())
}
