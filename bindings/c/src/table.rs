//! Handles that tell what was freed: a number of a place and of the generation that lives there (docs/decisions/0188).
//!
//! A program that uses a handle after it has freed it gets an error. With pointers the library could not know.

use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{Failure, Outcome, noctule_error};
use crate::flow::Flow;
use crate::session::Session;
use noctule::SecretKey;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What a handle can refer to.
#[derive(Clone)]
pub(crate) enum Object {
    Context(Arc<Context>),
    Identity(Arc<SecretKey>),
    Endpoint(Arc<Endpoint>),
    Session(Arc<Session>),
    Flow(Arc<Flow>),
}

/// Places of the first block; each further block has twice as many. Places never move, so that a look-up takes no lock but the place's own.
const FIRST_BLOCK: u32 = 64;
const BLOCKS: usize = 25;

static TABLE: [OnceLock<Box<[Mutex<Place>]>>; BLOCKS] = [const { OnceLock::new() }; BLOCKS];
static FREE: Mutex<Free> = Mutex::new(Free { places: Vec::new(), next: 0 });

struct Place {
    /// Of the handle that is or will be given out for it. Never 0, so that no handle is 0.
    generation: u32,
    object: Option<Object>,
}

struct Free {
    places: Vec<u32>,
    /// The first one that was never used.
    next: u32,
}

/// A handle for an object that is being made; given back if it is not filled.
pub(crate) struct Reserved {
    id: u64,
    is_filled: bool,
}

fn place(index: u32) -> Option<&'static Mutex<Place>> {
    let shifted = index.checked_add(FIRST_BLOCK)?;
    let block = (shifted.ilog2() - FIRST_BLOCK.ilog2()) as usize;
    let places = TABLE.get(block)?.get_or_init(|| {
        let empty = || Mutex::new(Place { generation: 1, object: None });
        std::iter::repeat_with(empty).take((FIRST_BLOCK as usize) << block).collect()
    });
    places.get((shifted - (FIRST_BLOCK << block)) as usize)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of a handle that may be any number.
fn place_of(id: u64) -> Option<(MutexGuard<'static, Place>, u32)> {
    let (index, generation) = (id as u32, (id >> 32) as u32);
    // What was never given out has no place yet, and a foreign number must not make one.
    let block = (index.checked_add(FIRST_BLOCK)?.ilog2() - FIRST_BLOCK.ilog2()) as usize;
    TABLE.get(block)?.get()?;
    let guard = lock(place(index)?);
    (guard.generation == generation).then_some((guard, index))
}

pub(crate) fn reserve() -> Outcome<Reserved> {
    let mut free = lock(&FREE);
    let index = match free.places.pop() {
        Some(index) => index,
        None => {
            let index = free.next;
            if place(index).is_none() {
                return Err(Failure::new(noctule_error::Limit, "as many handles as there can be: free some"));
            }
            free.next += 1;
            index
        }
    };
    drop(free);
    let generation = place(index).map_or(1, |p| lock(p).generation);
    Ok(Reserved { id: u64::from(generation) << 32 | u64::from(index), is_filled: false })
}

impl Reserved {
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
    pub(crate) fn fill(mut self, object: Object) -> u64 {
        if let Some((mut place, _)) = place_of(self.id) {
            place.object = Some(object);
        }
        self.is_filled = true;
        self.id
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_filled {
            release(self.id);
        }
    }
}

fn release(id: u64) -> Option<Object> {
    let (mut place, index) = place_of(id)?;
    let object = place.object.take();
    place.generation = place.generation.wrapping_add(1);
    let is_worn_out = place.generation == 0;
    drop(place);
    // A place that has had every generation is not used again: an old handle would fit.
    if !is_worn_out {
        lock(&FREE).places.push(index);
    }
    object
}

pub(crate) fn get(id: u64) -> Option<Object> {
    place_of(id)?.0.object.clone()
}

/// Takes an object of the kind that `is_kind` knows out of the table.
fn remove(id: u64, is_kind: impl FnOnce(&Object) -> bool) -> Option<Object> {
    {
        let (place, _) = place_of(id)?;
        if !is_kind(place.object.as_ref()?) {
            return None;
        }
    }
    release(id)
}

fn bad(kind: &str, id: u64) -> Failure {
    let words = if id == 0 {
        format!("the {kind} handle is 0: it was never set")
    } else {
        format!("handle {id:#x} is no {kind}: it was freed, or is the handle of something else")
    };
    Failure::new(noctule_error::BadHandle, words)
}

macro_rules! kinds {
    ($($kind:ident, $word:literal, $get:ident, $take:ident, $type:ty;)*) => {
        $(
            pub(crate) fn $get(id: u64) -> Outcome<Arc<$type>> {
                match get(id) {
                    Some(Object::$kind(object)) => Ok(object),
                    _ => Err(bad($word, id)),
                }
            }
            /// Frees the handle.
            pub(crate) fn $take(id: u64) -> Outcome<Arc<$type>> {
                match remove(id, |o| matches!(o, Object::$kind(_))) {
                    Some(Object::$kind(object)) => Ok(object),
                    _ => Err(bad($word, id)),
                }
            }
        )*
    };
}

kinds! {
    Context, "context", context, take_context, Context;
    Identity, "identity", identity, take_identity, SecretKey;
    Endpoint, "endpoint", endpoint, take_endpoint, Endpoint;
    Session, "session", session, take_session, Session;
    Flow, "flow", flow, take_flow, Flow;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Object {
        Object::Identity(Arc::new(SecretKey::from_bytes([7; 32])))
    }

    #[test]
    fn a_freed_handle_is_known_as_such_even_when_its_place_has_a_new_owner() {
        let first = reserve().unwrap().fill(key());
        assert!(identity(first).is_ok());
        assert!(take_identity(first).is_ok());
        assert!(identity(first).is_err() && take_identity(first).is_err());
        let others: Vec<u64> = (0..300).map(|_| reserve().unwrap().fill(key())).collect();
        assert!(identity(first).is_err());
        for id in others {
            assert!(take_identity(id).is_ok());
        }
    }

    #[test]
    fn a_handle_of_another_kind_and_any_other_number_are_refused() {
        let id = reserve().unwrap().fill(key());
        assert_eq!(flow(id).err().unwrap().code, noctule_error::BadHandle);
        assert!(take_session(id).is_err());
        assert!(identity(id).is_ok());
        for strange in [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32 | 0xffff_ff00, id + (1 << 32), id ^ 1 << 20] {
            assert!(identity(strange).is_err(), "{strange:x}");
        }
        take_identity(id).unwrap();
    }

    #[test]
    fn what_is_reserved_and_not_filled_is_given_back() {
        let id = reserve().unwrap().id();
        assert!(get(id).is_none());
        assert!(place_of(id).is_none(), "its generation has passed");
    }
}
