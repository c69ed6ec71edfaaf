//! Identities of both ends: key pairs, their files, and public keys.

use noctule::{EndpointConfig, KeyTextError, SecretKey};
use pyo3::exceptions::{PyPermissionError, PyValueError};
use pyo3::prelude::*;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

fn text_error(error: &KeyTextError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The public half of an identity: what the other side pins.
#[pyclass(frozen, eq, module = "noctule")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PublicKey(pub noctule::PublicKey);

#[pymethods]
impl PublicKey {
    #[new]
    fn new(text: &str) -> PyResult<Self> {
        text.parse().map(Self).map_err(|e| text_error(&e))
    }

    /// A short form for two people to compare; not a key.
    fn fingerprint(&self) -> String {
        self.0.fingerprint()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("PublicKey('{}')", self.0)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.0.hash(&mut hasher);
        hasher.finish()
    }
}

/// A key pair, the name of this host.
#[pyclass(frozen, module = "noctule")]
pub struct Identity(pub SecretKey);

#[pymethods]
impl Identity {
    /// A fresh one from the system's secure random source.
    #[staticmethod]
    fn generate() -> PyResult<Self> {
        Ok(Self(EndpointConfig::ephemeral()?.identity))
    }

    /// From a file as `noctule keygen` makes it. With `create`, one that is not there is made.
    #[staticmethod]
    #[pyo3(signature = (path, *, create=false))]
    fn load(path: PathBuf, create: bool) -> PyResult<Self> {
        let mut file = match File::open(&path) {
            Err(e) if create && e.kind() == std::io::ErrorKind::NotFound => {
                let made = Self::generate()?;
                made.write(&path)?;
                return Ok(made);
            }
            result => result.map_err(|e| with_path(e, &path))?,
        };
        // Of the descriptor: what is looked at is what is read.
        let meta = file.metadata()?;
        is_secret(&path, meta.mode(), meta.uid())?;
        let mut text = Zeroizing::new(String::new());
        file.read_to_string(&mut text).map_err(|e| with_path(e, &path))?;
        text.parse().map(Self).map_err(|e: KeyTextError| PyValueError::new_err(format!("{}: {e}", path.display())))
    }

    /// Into a file that only this user can read; one that exists is an error.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        self.write(&path)
    }

    /// The public half.
    #[getter]
    fn public_key(&self) -> PublicKey {
        PublicKey(self.0.public())
    }

    fn __repr__(&self) -> String {
        format!("<Identity {}>", self.0.public())
    }
}

impl Identity {
    fn write(&self, path: &Path) -> PyResult<()> {
        let text = Zeroizing::new(self.0.to_text() + "\n");
        let file = OpenOptions::new().write(true).mode(0o600).create_new(true).open(path);
        file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all())).map_err(|e| with_path(e, path))
    }
}

/// An error of the system as Python raises it, with the file's name.
fn with_path(error: std::io::Error, path: &Path) -> PyErr {
    match error.raw_os_error() {
        // OSError makes the fitting subclass of it.
        Some(errno) => {
            let text = error.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            pyo3::exceptions::PyOSError::new_err((errno, text, path.to_path_buf()))
        }
        None => PyValueError::new_err(format!("{}: {error}", path.display())),
    }
}

/// A key that others can read, or that another user gave, is no secret of this one: the rules of `noctule keygen`'s files.
fn is_secret(path: &Path, mode: u32, owner: u32) -> PyResult<()> {
    // SAFETY: has no arguments and cannot fail.
    let ours = unsafe { libc::geteuid() };
    if owner != ours && owner != 0 {
        return Err(PyPermissionError::new_err(format!("{}: it belongs to another user (uid {owner}), who knows the key", path.display())));
    }
    if mode & 0o077 != 0 {
        return Err(PyPermissionError::new_err(format!(
            "{0}: others may open it (mode {1:04o}), so it may be no secret any more: chmod 600 {0}",
            path.display(),
            mode & 0o7777
        )));
    }
    Ok(())
}
