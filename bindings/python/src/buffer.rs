//! Bytes of Python objects: anything that has the buffer protocol.
//!
//! The three functions and the structure of the buffer protocol belong to the stable ABI from Python 3.11 on, and PyO3 hides them below. They are the same in
//! 3.10, whose last release is out, so they are declared here.

use noctule::Bytes;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use std::ffi::{c_char, c_int, c_void};

/// Shorter blocks are copied: keeping a Python object costs more.
const KEPT: usize = 4096;

#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

const SIMPLE: c_int = 0;
const WRITABLE: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
    fn PyObject_CheckBuffer(object: *mut ffi::PyObject) -> c_int;
}

/// A view of an object's bytes, which keeps it from moving them.
pub struct View<'py> {
    raw: Box<RawBuffer>,
    _py: Python<'py>,
}

impl<'py> View<'py> {
    /// The bytes of `object`, to be read.
    pub fn of(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(object, SIMPLE)
    }

    /// The bytes of `object`, to be written.
    pub fn writable(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::get(object, WRITABLE)
    }

    fn get(object: &Bound<'py, PyAny>, flags: c_int) -> PyResult<Self> {
        // SAFETY: an object that lives, under the interpreter's lock.
        if unsafe { PyObject_CheckBuffer(object.as_ptr()) } == 0 {
            let name = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a bytes-like object is needed, not {name}")));
        }
        // SAFETY: zeroes are a valid value of every field, and the call fills them. In a box, since exporters may keep pointers into the structure.
        let mut raw: Box<RawBuffer> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: as above; the structure lives until it is released in `drop`.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *raw, flags) } != 0 {
            let error = PyErr::take(object.py());
            return Err(error.unwrap_or_else(|| PyTypeError::new_err("the object does not show its bytes")));
        }
        Ok(Self { raw, _py: object.py() })
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        usize::try_from(self.raw.len).unwrap_or(0)
    }

    /// The bytes. Others may hold views of the same object, so they are not to be kept while Python runs.
    pub fn bytes(&self) -> &[u8] {
        if self.len() == 0 {
            return &[];
        }
        // SAFETY: the exporter promises `len` contiguous bytes (no flag asks for less), and the interpreter's lock is held for as long as the slice is used.
        unsafe { std::slice::from_raw_parts(self.raw.buf.cast(), self.len()) }
    }

    /// Copies `from` to the place `at`.
    pub fn put(&mut self, at: usize, from: &[u8]) -> PyResult<()> {
        if self.raw.readonly != 0 || at.checked_add(from.len()).is_none_or(|end| end > self.len()) {
            return Err(PyValueError::new_err("the buffer cannot take so many bytes"));
        }
        // SAFETY: within the `len` writable bytes that the exporter promises; `from` is memory of our own.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.raw.buf.cast::<u8>().add(at), from.len()) };
        Ok(())
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        // SAFETY: filled by a call that succeeded, released once, under the interpreter's lock.
        unsafe { PyBuffer_Release(&mut *self.raw) }
    }
}

/// The content of an object as a block that outlives the call: of `bytes`, which never change, the object itself; of anything else a copy.
pub fn block(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>()
        && bytes.as_bytes().len() >= KEPT
    {
        // Given back without the interpreter's lock: PyO3 notes that, and the next call does it.
        return Ok(Bytes::from_owner(PyBackedBytes::from(bytes.clone())));
    }
    Ok(Bytes::copy_from_slice(View::of(object)?.bytes()))
}
