//! What a neighbour is asked to pass on: which object, how it is cut, and to which receivers.

use noctule_proto::object::{Layout, ObjectError};
use noctule_proto::wire::WireError;
use noctule_proto::wire::varint::{Reader, emit};
use std::net::IpAddr;

/// Receivers of one branch at most.
pub const MAX_RECEIVERS: usize = 1000;
/// Nodes that a branch may pass: routes that loop end.
pub const MAX_HOPS: u8 = 32;
/// Of what is said about branches.
const VERSION: u64 = 1;

/// A receiver, as the source numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its number.
    pub number: u64,
    /// Its address in the overlay.
    pub address: IpAddr,
}

/// The part of a tree that lies behind one neighbour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Tells objects apart; random.
    pub number: u32,
    /// Nodes that it may still pass.
    pub hops: u8,
    /// How the object is cut.
    pub layout: Layout,
    /// The receivers that it is for.
    pub members: Vec<Member>,
}

impl Branch {
    /// Appends it.
    pub fn emit(&self, out: &mut Vec<u8>) {
        emit(out, VERSION);
        out.extend_from_slice(&self.number.to_be_bytes());
        out.push(self.hops);
        self.layout.emit(out);
        emit(out, self.members.len() as u64);
        for member in &self.members {
            emit(out, member.number);
            match member.address {
                IpAddr::V4(a) => {
                    out.push(4);
                    out.extend_from_slice(&a.octets());
                }
                IpAddr::V6(a) => {
                    out.push(6);
                    out.extend_from_slice(&a.octets());
                }
            }
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// Another version, nobody or too many to pass it on to, or nonsense.
    pub fn parse(bytes: &[u8]) -> Result<Self, ObjectError> {
        let mut r = Reader::new(bytes);
        if r.varint()? != VERSION {
            return Err(WireError::Invalid("a branch of another version").into());
        }
        let (number, hops, layout) = (r.u32()?, r.u8()?, Layout::parse(&mut r)?);
        let count = r.varint()? as usize;
        if !(1..=MAX_RECEIVERS).contains(&count) {
            return Err(WireError::Invalid("a branch has 1 to 1000 receivers").into());
        }
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let number = r.varint()?;
            let address = match r.u8()? {
                4 => IpAddr::from(r.array::<4>()?),
                6 => IpAddr::from(r.array::<16>()?),
                _ => return Err(WireError::Invalid("an address of no known family").into()),
            };
            members.push(Member { number, address });
        }
        Ok(Self { number, hops, layout, members })
    }

    /// The part of it that is for these members, one node further.
    pub fn part(&self, members: Vec<Member>) -> Self {
        Self { hops: self.hops.saturating_sub(1), members, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch() -> Branch {
        let member = |number, address: &str| Member { number, address: address.parse().unwrap() };
        let layout = Layout::new(100_000, 1344, 1024, 16, 5).unwrap();
        Branch { number: 0xfeed_f00d, hops: 7, layout, members: vec![member(0, "10.9.0.1"), member(300, "fd09::7")] }
    }

    #[test]
    fn a_branch_is_read_as_it_was_written() {
        let mut bytes = Vec::new();
        branch().emit(&mut bytes);
        assert_eq!(Branch::parse(&bytes).unwrap(), branch());
        assert_eq!(branch().part(Vec::new()).hops, 6);
    }

    #[test]
    fn what_is_no_branch_is_refused_wherever_it_is_cut_or_altered() {
        let mut bytes = Vec::new();
        branch().emit(&mut bytes);
        for end in 0..bytes.len() {
            assert!(Branch::parse(&bytes[..end]).is_err(), "{end}");
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x3f, 0x7f, 0xff] {
                let mut altered = bytes.clone();
                altered[at] = value;
                // No panic, and nobody is invented beyond what the bytes hold.
                if let Ok(read) = Branch::parse(&altered) {
                    assert!((1..=2).contains(&read.members.len()));
                }
            }
        }
        let nobody = Branch { members: Vec::new(), ..branch() };
        bytes.clear();
        nobody.emit(&mut bytes);
        assert!(Branch::parse(&bytes).is_err());
    }
}
