//! Callers that have shown their key and may not call, in the log: a line a second at most, as often as the node tells of them.

use noctule::{Endpoint, Refusal};

/// One that was refused, and how many were beside it.
pub fn log(refusal: &Refusal) {
    let Refusal { peer, remote, reason, left_out } = refusal;
    tracing::warn!(key = %peer, address = %remote, left_out, "a link was refused: {}", reason.text());
}

/// All of them, until the endpoint is closed.
pub async fn log_all(endpoint: Endpoint) {
    while let Some(refusal) = endpoint.refused().await {
        log(&refusal);
    }
}
