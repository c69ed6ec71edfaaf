//! The two hosts of a measurement with a contender between them, and small servers on the far one.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::contender::{Carried, Contender, Ends, TARGET};
use crate::net::chain::{BackendChoice, Chain};
use crate::net::contest::{ContestError, Course};
use crate::net::emulator::{Options, Tolerance};
use crate::net::namespace::Namespace;
use crate::net::process::Process;
use crate::net::run::tune_tcp;
use crate::net::tcp::accept;
use crate::scenario::Scenario;

/// How long a program waits for a connection, or for an answer on it, before the measurement has failed.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// A contender between two hosts.
pub(super) struct Lane<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) contender: Contender,
    pub(super) near: Namespace,
    pub(super) far: Namespace,
    carried: Carried,
    course: Course,
}

impl<'a> Lane<'a> {
    /// Between the ends of the scenario's chain.
    pub(super) fn over_links(scenario: &'a Scenario, contender: Contender) -> Result<Self, ContestError> {
        Self::start(scenario, contender, false)
    }

    /// Within one host: no link, only processors.
    pub(super) fn over_loopback(scenario: &'a Scenario, contender: Contender) -> Result<Self, ContestError> {
        Self::start(scenario, contender, true)
    }

    fn start(scenario: &'a Scenario, contender: Contender, is_loopback: bool) -> Result<Self, ContestError> {
        let chain = Chain::build(&scenario.hops, scenario.ip, BackendChoice::Auto, scenario.seed)?;
        tune_tcp(&chain, scenario)?;
        let course = Course::start(chain, Options::default())?;
        let chain = course.chain();
        let near = chain.first().clone();
        let (far, far_address) = match is_loopback {
            true => (near.clone(), Ipv4Addr::LOCALHOST.into()),
            false => (chain.last().clone(), chain.last_address()),
        };
        let ends = Ends { near: &near, far: &far, far_address };
        let carried = contender.start(&ends, chain, scenario)?;
        Ok(Self { scenario, contender, near, far, carried, course })
    }

    /// The links and their accounts.
    pub(super) fn course(&self) -> &Course {
        &self.course
    }

    /// Where programs on the near host connect to.
    pub(super) fn address(&self) -> SocketAddr {
        self.carried.address
    }

    /// The processes of the contender, near and far.
    pub(super) fn processes(&self) -> &[Process] {
        &self.carried.processes
    }

    /// A server on the far host: each of `workers` threads takes a connection and serves it until it returns.
    pub(super) fn serve<F>(&self, workers: usize, handle: F) -> Result<Server, ContestError>
    where
        F: Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
    {
        let control = self.contender.congestion().name();
        let listener = self.far.enter(|| -> io::Result<TcpListener> {
            let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, TARGET))?;
            // What is accepted has it, too.
            socket2::SockRef::from(&listener).set_tcp_congestion(control.as_bytes())?;
            Ok(listener)
        })??;
        let over = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for _ in 0..workers {
            let (listener, over, handle) = (listener.try_clone()?, Arc::clone(&over), handle.clone());
            threads.push(self.far.spawn_thread("server", move || {
                while let Ok(Some(stream)) = accept(&listener, Duration::MAX, Instant::now(), &over) {
                    // A connection that breaks is the client's to notice.
                    let _ = stream.set_nodelay(true).and_then(|()| handle(stream));
                }
            })?);
        }
        Ok(Server { over, threads })
    }

    /// Ends the contender and stops the links; a run that the machine was too slow for is an error.
    pub(super) fn finish(self) -> Result<(), ContestError> {
        drop(self.carried);
        self.course.finish(&Tolerance::default())?;
        Ok(())
    }
}

/// A connection of a program on this thread's host.
pub(super) fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A server that takes no more connections when it is dropped.
pub(super) struct Server {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            // One that panicked has been heard of already.
            let _ = thread.join();
        }
    }
}
