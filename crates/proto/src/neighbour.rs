//! The neighbours among which a node shares out what it has.

use crate::crypto::PublicKey;
use crate::ids::LinkId;

/// Whose share something takes: the owner of a key, with all its links. One key may have many of them (`max_links_per_key`), and a share for each would be no share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Neighbour {
    Key(PublicKey),
    /// All neighbours together by which the parts of a spread flow come.
    Several,
    /// A link whose other end is not known yet.
    Link(LinkId),
}
