//! Identities: secret keys as handles, public keys as text.

use crate::error::{Failure, call, noctule_error};
use crate::input;
use crate::table::{self, Object};
use noctule::{EndpointConfig, PublicKey, SecretKey};
use std::ffi::{c_char, c_void};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

/// A secret key. 0 is none. A copy is the same identity.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct noctule_identity {
    /// Name of the identity; for the library only.
    pub id: u64,
}

/// Bytes that hold the text of a public key, with its nul.
pub const NOCTULE_KEY_TEXT: usize = 57;
/// Bytes that hold the text of a secret key, with its nul.
pub const NOCTULE_SECRET_TEXT: usize = 64;

/// Bits of a mode that give users other than the owner access.
const OTHERS: u32 = 0o077;
/// Bytes of a key file, at most.
const LONGEST_FILE: u64 = 4096;

/// # Safety
/// `out` is null or can be written to.
unsafe fn keep(out: *mut noctule_identity, key: SecretKey) -> Result<(), Failure> {
    let id = table::reserve()?.fill(Object::Identity(Arc::new(key)));
    // SAFETY: as the caller promises.
    unsafe { input::store(out, noctule_identity { id }) };
    Ok(())
}

/// Makes a fresh identity from the operating system's secure random source.
///
/// Threads: any. Blocks: never. Owns: `*identity` is the program's, to be freed with `noctule_identity_free`; endpoints keep what they need.
/// Errors: `NULL_ARGUMENT`, `SYSTEM` (no randomness), `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_generate(identity: *mut noctule_identity) -> noctule_error {
    call(|| {
        input::required("identity", identity)?;
        let config = EndpointConfig::ephemeral().map_err(|e| Failure::system("no randomness", &e))?;
        // SAFETY: as the caller promises.
        unsafe { keep(identity, config.identity) }
    })
}

/// Reads an identity from its text ("secret-" and 56 characters), as `noctule keygen` writes it. White space around it is left out.
///
/// Threads: any. Blocks: never. Owns: as `noctule_identity_generate`. Errors: `NULL_ARGUMENT`, `INVALID_ARGUMENT` (in words: what is wrong with the text), `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_from_text(text: *const c_char, identity: *mut noctule_identity) -> noctule_error {
    call(|| {
        input::required("identity", identity)?;
        // SAFETY: as the caller promises.
        let text = unsafe { input::text("text", text) }?;
        let key = text.parse::<SecretKey>().map_err(|e| Failure::invalid(e.to_string()))?;
        // SAFETY: as the caller promises.
        unsafe { keep(identity, key) }
    })
}

/// Makes an identity of the 32 bytes of an X25519 secret key, which come from a secure random source.
///
/// Threads: any. Blocks: never. Owns: as `noctule_identity_generate`; `bytes` is copied.
/// Errors: `NULL_ARGUMENT`, `INVALID_ARGUMENT` (`length` is not 32), `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_from_bytes(
    bytes: *const c_void,
    length: usize,
    identity: *mut noctule_identity,
) -> noctule_error {
    call(|| {
        input::required("identity", identity)?;
        // SAFETY: as the caller promises.
        let bytes = unsafe { input::slice("bytes", bytes.cast::<u8>(), length) }?;
        let bytes: [u8; 32] = bytes.try_into().map_err(|_| Failure::invalid(format!("a secret key has 32 bytes, this has {length}")))?;
        // SAFETY: as the caller promises.
        unsafe { keep(identity, SecretKey::from_bytes(bytes)) }
    })
}

/// Reads an identity from a file that only its owner can read, as `noctule keygen -o FILE` and `noctule_identity_save` make it.
///
/// Threads: any. Blocks: for the file system. Owns: as `noctule_identity_generate`.
/// Errors: `NULL_ARGUMENT`, `SYSTEM` (it cannot be read), `PERMISSION` (not allowed, or others than its owner may read it), `INVALID_ARGUMENT` (no secret key), `LIMIT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_load(path: *const c_char, identity: *mut noctule_identity) -> noctule_error {
    call(|| {
        input::required("identity", identity)?;
        // SAFETY: as the caller promises.
        let path = unsafe { input::text("path", path) }?;
        let failed = |e: std::io::Error| Failure::system(path, &e);
        let file = std::fs::File::open(path).map_err(failed)?;
        // Of the descriptor: what is looked at is what is read.
        let mode = file.metadata().map_err(failed)?.mode();
        if mode & OTHERS != 0 {
            let words = format!("{path} has mode {:04o}, others can read the key: chmod 600 it, or make a new one", mode & 0o7777);
            return Err(Failure::new(noctule_error::Permission, words));
        }
        let mut text = String::new();
        file.take(LONGEST_FILE).read_to_string(&mut text).map_err(failed)?;
        let key = text.parse::<SecretKey>().map_err(|e| Failure::invalid(format!("{path}: {e}")))?;
        // SAFETY: as the caller promises.
        unsafe { keep(identity, key) }
    })
}

/// Writes an identity to a new file that only its owner can read.
///
/// Threads: any. Blocks: for the file system. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `PERMISSION`, `SYSTEM` (the file exists, or cannot be written).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_save(identity: noctule_identity, path: *const c_char) -> noctule_error {
    call(|| {
        let key = table::identity(identity.id)?;
        // SAFETY: as the caller promises.
        let path = unsafe { input::text("path", path) }?;
        let failed = |e: std::io::Error| Failure::system(path, &e);
        let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(format!("{}\n", key.to_text()).as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    })
}

/// Writes the text of the public key, which others pin; `NOCTULE_KEY_TEXT` bytes hold it.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_public_key(identity: noctule_identity, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let key = table::identity(identity.id)?.public();
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", &key.to_string(), text, capacity) }
    })
}

/// Writes the text of the secret key, to be stored where no other user can read it; `NOCTULE_SECRET_TEXT` bytes hold it.
///
/// Threads: any. Blocks: never. Owns: the program clears the buffer. Errors: `BAD_HANDLE`, `NULL_ARGUMENT`, `BUFFER_TOO_SMALL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_identity_secret_text(identity: noctule_identity, text: *mut c_char, capacity: usize) -> noctule_error {
    call(|| {
        let key = table::identity(identity.id)?;
        // SAFETY: as the caller promises.
        unsafe { input::store_text("text", &key.to_text(), text, capacity) }
    })
}

/// Says whether a text is a public key; the last error says what is wrong with it if it is not.
///
/// Threads: any. Blocks: never. Errors: `NULL_ARGUMENT`, `INVALID_ARGUMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn noctule_key_check(text: *const c_char) -> noctule_error {
    call(|| {
        // SAFETY: as the caller promises.
        public_key("text", unsafe { input::text("text", text) }?).map(drop)
    })
}

/// Frees an identity; its memory is cleared once no endpoint has it.
///
/// Threads: any. Blocks: never. Errors: `BAD_HANDLE`.
#[unsafe(no_mangle)]
pub extern "C" fn noctule_identity_free(identity: noctule_identity) -> noctule_error {
    call(|| table::take_identity(identity.id).map(drop))
}

/// Reads a public key.
pub(crate) fn public_key(name: &str, text: &str) -> Result<PublicKey, Failure> {
    text.parse().map_err(|e| Failure::invalid(format!("{name}: {e}")))
}
