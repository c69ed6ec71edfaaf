//! Checks arguments from C before they are used.

use crate::error::{Failure, Outcome, noctule_error};
use std::ffi::{CStr, c_char};
use std::time::Duration;

/// Bytes of the largest structure of any version: a size above it was never set.
const MOST_SIZE: usize = 4096;

fn null(name: &str) -> Failure {
    Failure::new(noctule_error::NullArgument, format!("{name} is null"))
}

/// Text that must be there.
///
/// # Safety
/// Null, or a string that ends with a nul and stays as it is for `'a`.
pub(crate) unsafe fn text<'a>(name: &str, text: *const c_char) -> Outcome<&'a str> {
    if text.is_null() {
        return Err(null(name));
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

/// Text that may be null, which is nothing.
///
/// # Safety
/// As [`text`].
pub(crate) unsafe fn text_or_none<'a>(name: &str, given: *const c_char) -> Outcome<Option<&'a str>> {
    // SAFETY: as the caller promises.
    if given.is_null() { Ok(None) } else { unsafe { text(name, given) }.map(Some) }
}

fn check_len<T>(name: &str, len: usize) -> Outcome<()> {
    if len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::invalid(format!("the length {len} of {name} is more than there is memory: is it negative?")));
    }
    Ok(())
}

/// Elements to read. Null is allowed where `len` is 0.
///
/// # Safety
/// `len` elements can be read at `start` for `'a`.
pub(crate) unsafe fn slice<'a, T>(name: &str, start: *const T, len: usize) -> Outcome<&'a [T]> {
    check_len::<T>(name, len)?;
    match (start.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(null(name)),
        // SAFETY: not null, and as the caller promises.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(start, len) }),
    }
}

/// Bytes to write to, which may not be initialised yet. Null is allowed where `len` is 0.
///
/// # Safety
/// `len` bytes can be written at `start` for `'a`, and no other code accesses them.
pub(crate) unsafe fn buffer<'a>(name: &str, start: *mut u8, len: usize) -> Outcome<&'a mut [std::mem::MaybeUninit<u8>]> {
    check_len::<u8>(name, len)?;
    match (start.is_null(), len) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(null(name)),
        // SAFETY: not null, and as the caller promises; any byte is a good `MaybeUninit`.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }),
    }
}

/// Refuses null before any work is done.
pub(crate) fn required<T>(name: &str, out: *mut T) -> Outcome<()> {
    if out.is_null() { Err(null(name)) } else { Ok(()) }
}

/// Stores a result where null is no place for it and was refused before, or means that the result is not wanted.
///
/// # Safety
/// Null, or a `T` can be written there.
pub(crate) unsafe fn store<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as the caller promises.
        unsafe { out.write(value) };
    }
}

/// Writes text with a nul behind it.
///
/// # Safety
/// `capacity` bytes can be written at `out`.
pub(crate) unsafe fn store_text(name: &str, text: &str, out: *mut c_char, capacity: usize) -> Outcome<()> {
    // SAFETY: as the caller promises.
    let out = unsafe { buffer(name, out.cast(), capacity) }?;
    if out.len() <= text.len() {
        let words = format!("{name} has {} bytes, and the text needs {} with its nul", out.len(), text.len() + 1);
        return Err(Failure::new(noctule_error::BufferTooSmall, words));
    }
    for (place, byte) in out.iter_mut().zip(text.bytes().chain([0])) {
        place.write(byte);
    }
    Ok(())
}

/// A structure whose first member is its size, in bytes, as the program was compiled with.
///
/// # Safety
/// `repr(C)`, without padding that matters, its first member is a `usize`, and every pattern of bits is a good value of it.
pub(crate) unsafe trait Sized1: Copy {
    /// Its name in the header.
    const NAME: &'static str;
}

/// What a program says in a structure of options; members that its header did not have yet are as `default` has them.
///
/// # Safety
/// Null, or as many bytes can be read there as the structure says itself.
pub(crate) unsafe fn options<T: Sized1>(given: *const T, default: T) -> Outcome<T> {
    if given.is_null() {
        return Ok(default);
    }
    // SAFETY: there is at least the size.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() || size > MOST_SIZE || size % align_of::<usize>() != 0 {
        return Err(Failure::invalid(format!("{} has size {size}: set it to sizeof({})", T::NAME, T::NAME)));
    }
    if size > size_of::<T>() {
        let words = format!("{} has size {size}, this library knows {}: it is older than the header", T::NAME, size_of::<T>());
        return Err(Failure::new(noctule_error::Version, words));
    }
    let mut value = default;
    // SAFETY: no more than either has, and every pattern of bits is good.
    unsafe { std::ptr::copy_nonoverlapping(given.cast::<u8>(), (&raw mut value).cast::<u8>(), size) };
    Ok(value)
}

/// Fills a structure of results as far as the program's header knows it.
///
/// # Safety
/// Null, or as many bytes can be written there as the structure says itself.
pub(crate) unsafe fn store_sized<T: Sized1>(out: *mut T, make: impl FnOnce() -> Outcome<T>) -> Outcome<()> {
    required(T::NAME, out)?;
    // SAFETY: there is at least the size.
    let size = unsafe { out.cast::<usize>().read_unaligned() };
    if size < size_of::<usize>() || size > MOST_SIZE || size % align_of::<usize>() != 0 {
        return Err(Failure::invalid(format!("{} has size {size}: set it to sizeof({}) before the call", T::NAME, T::NAME)));
    }
    let value = make()?;
    let (head, known) = (size_of::<usize>(), size.min(size_of::<T>()));
    // SAFETY: no more than either has; the size in front stays as the program set it. What this library does not know is 0.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>().add(head), out.cast::<u8>().add(head), known - head);
        std::ptr::write_bytes(out.cast::<u8>().add(known), 0, size - known);
    }
    Ok(())
}

/// Milliseconds of an option, where 0 means the default.
pub(crate) fn millis(value: u64) -> Option<Duration> {
    (value > 0).then(|| Duration::from_millis(value))
}
