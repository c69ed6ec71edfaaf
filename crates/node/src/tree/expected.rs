//! Hands flows of branches to the tasks that wait for them.

use noctule::{IncomingFlow, PublicKey, Session};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Key of the flow's opener, and the flow's tag.
type Name = (PublicKey, u64);

/// Which flows are waited for, and by which task; its clones share it.
#[derive(Clone, Default)]
pub struct Expected(Arc<Mutex<HashMap<Name, mpsc::Sender<IncomingFlow>>>>);

/// Flows of one branch from one neighbour, until it is dropped.
pub struct Expectation {
    expected: Expected,
    name: Name,
    flows: mpsc::Receiver<IncomingFlow>,
}

impl Expected {
    fn lock(&self) -> MutexGuard<'_, HashMap<Name, mpsc::Sender<IncomingFlow>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on flows of this neighbour with this tag are wanted; `None` if another task wants them already.
    pub fn expect(&self, from: PublicKey, tag: u64) -> Option<Expectation> {
        // A stream and a flow of packets.
        let (sender, flows) = mpsc::channel(2);
        let name = (from, tag);
        match self.lock().entry(name) {
            std::collections::hash_map::Entry::Occupied(_) => None,
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(sender);
                Some(Expectation { expected: self.clone(), name, flows })
            }
        }
    }

    /// Gives a flow to the task that waits for it. A flow that no task wants is dropped, which its far end is told.
    pub fn give(&self, from: PublicKey, flow: IncomingFlow) {
        let waiting = self.lock().get(&(from, flow.tag())).cloned();
        if let Some(waiting) = waiting {
            let _ = waiting.try_send(flow);
        }
    }

    /// Takes the flows of a session until its far end ends it. Only those of branches that are waited for are used.
    pub async fn serve(self, session: Session) {
        while let Ok(flow) = session.accept_flow().await {
            self.give(session.peer_key(), flow);
        }
    }
}

impl Expectation {
    /// The next flow; may be dropped and called again.
    pub async fn next(&mut self) -> IncomingFlow {
        match self.flows.recv().await {
            Some(flow) => flow,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Expectation {
    fn drop(&mut self) {
        self.expected.lock().remove(&self.name);
    }
}
