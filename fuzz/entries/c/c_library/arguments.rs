//! Arguments of calls, from the input: handles, numbers, buffers, texts and structures, right ones mostly.

use super::*;

/// One handle: mostly of the kind that is asked for, and mostly one that was given out.
pub(super) fn pick(input: &mut Input<'_>, kind: Kind) -> u64 {
    let mut made = made();
    let choice = input.u8();
    let list = match choice {
        0..=219 => made.of(kind).clone(),
        _ => made.handles.concat(),
    };
    // The newest first: what comes later is about what was just made.
    let one = list.iter().rev().nth(usize::from(choice) % list.len().max(1)).copied().unwrap_or(0);
    match choice {
        240..=244 => 0,
        245..=249 => one ^ 1 << 32,
        250.. => input.u64(),
        _ => one,
    }
}

/// A number at one of the borders, or any.
pub(super) fn number(input: &mut Input<'_>) -> u64 {
    match input.u8() {
        0 => 0,
        1 => u64::MAX,
        2 => u64::MAX / 2,
        3 => 1 << 62,
        4 => (1 << 62) - 1,
        5 => u64::MAX / 1000,
        6 => input.u64(),
        7..=60 => u64::from(input.u16()),
        other => u64::from(other - 60),
    }
}

/// A buffer of the program: null, or some of `block`. A length that would be negative comes with any pointer, as it is looked at first.
pub(super) fn span(input: &mut Input<'_>, block: &mut [u8]) -> (*mut c_void, usize) {
    let start = block.as_mut_ptr().cast::<c_void>();
    match input.u8() {
        0 => (null_mut(), 0),
        1 => (null_mut(), 1),
        2 => (start, usize::MAX),
        3 => (null_mut(), usize::MAX / 2 + 1),
        4 => (start, 0),
        5 => (start, block.len()),
        6..=99 => (start, usize::from(input.u16()).min(block.len())),
        other => (start, usize::from(other)),
    }
}

/// Texts of one run, which stay where they are until it ends.
#[derive(Default)]
pub(super) struct Texts(Vec<CString>);

impl Texts {
    pub(super) fn keep(&mut self, bytes: &[u8]) -> *const c_char {
        let until_nul = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        self.0.push(CString::new(until_nul).unwrap_or_default());
        self.0.last().map_or(null(), |text| text.as_ptr())
    }

    pub(super) fn any(&mut self, input: &mut Input<'_>) -> *const c_char {
        const SOME: [&CStr; 16] = [
            c"",
            c"any",
            c"model",
            c"rate",
            c"gcc",
            c"bbr",
            c"none",
            c"x",
            c"127.0.0.1:0",
            c"[::1]:0",
            c"0.0.0.0:70000",
            c"192.0.2.1:0",
            c"\xff\xfe",
            c"goodbye",
            c"shared-",
            c"secret-",
        ];
        match input.u8() {
            255 => null(),
            254 => self.keep(input.bytes()),
            253 => self.keep(&[b'a'; 5000]),
            252 => self.key(input),
            other => SOME[usize::from(other) % SOME.len()].as_ptr(),
        }
    }

    /// The key of an endpoint or of an identity.
    pub(super) fn key(&mut self, input: &mut Input<'_>) -> *const c_char {
        let mut text = [0u8; NOCTULE_KEY_TEXT];
        let start = text.as_mut_ptr().cast::<c_char>();
        let is_endpoint = input.u8() < 200;
        let id = pick(input, if is_endpoint { Kind::Endpoint } else { Kind::Identity });
        // SAFETY: as large as is said.
        let result = unsafe {
            if is_endpoint {
                noctule_endpoint_public_key(endpoint(id), start, text.len())
            } else {
                noctule_identity_public_key(identity(id), start, text.len())
            }
        };
        check("a public key", code(result));
        self.keep(&text)
    }

    /// Where to connect to: this host only.
    pub(super) fn host(&mut self, input: &mut Input<'_>) -> *const c_char {
        match input.u8() {
            0 => null(),
            1 => c"127.0.0.1:1".as_ptr(),
            2 => c"localhost:1".as_ptr(),
            3 => c"[::1]:1".as_ptr(),
            4 => c"127.0.0.1".as_ptr(),
            5 => c"127.0.0.1:99999".as_ptr(),
            // Without a port it is no address, so that nothing else is asked.
            6 => self.keep(&input.bytes().iter().filter(|byte| **byte != b':').copied().collect::<Vec<_>>()),
            _ => {
                let mut text = [0u8; NOCTULE_ADDRESS_TEXT];
                // SAFETY: as large as is said.
                let result =
                    unsafe { noctule_endpoint_address(endpoint(pick(input, Kind::Endpoint)), text.as_mut_ptr().cast(), text.len()) };
                check("noctule_endpoint_address", code(result));
                self.keep(&text)
            }
        }
    }
}

/// A size that a structure may say to have; `right` mostly.
pub(super) fn size(input: &mut Input<'_>, right: usize) -> usize {
    match input.u8() {
        0 => 0,
        1 => right - 8,
        2 => right + 8,
        3 => 4096,
        4 => 4104,
        5 => usize::MAX,
        6 => 8,
        7 => right - 1,
        8 => 16,
        _ => right,
    }
}

/// Structures of results: what the library fills is as large as the structure says, and not more.
pub(super) fn results(input: &mut Input<'_>, right: usize, call: impl FnOnce(*mut u64) -> noctule_error) -> isize {
    if input.u8() == 0 {
        return code(call(null_mut()));
    }
    let mut words = vec![UNTOUCHED; WORDS];
    let said = size(input, right);
    words[0] = said as u64;
    let result = code(call(words.as_mut_ptr()));
    let may = if result == OK { said } else { 8 };
    assert!(words.iter().skip(may.div_ceil(8)).all(|word| *word == UNTOUCHED), "{said} bytes: more were written");
    assert_eq!(words[0], said as u64, "the size stays");
    result
}

/// A structure of options; `fields` are the offsets of what may be any number.
pub(super) fn choices(input: &mut Input<'_>, right: usize, fields: usize) -> Option<Vec<u64>> {
    if input.u8() < 100 {
        return None;
    }
    let mut words = vec![0; WORDS];
    words[0] = size(input, right) as u64;
    for _ in 0..input.u8() % 4 {
        words[1 + usize::from(input.u8()) % fields] = number(input);
    }
    Some(words)
}

pub(super) fn endpoint_choices(input: &mut Input<'_>, texts: &mut Texts, list: &mut Vec<*const c_char>) -> Option<Vec<u64>> {
    let mut words = choices(input, size_of::<noctule_endpoint_options>(), size_of::<noctule_endpoint_options>() / 8 - 1)?;
    let place = |offset: usize| offset / 8;
    let asks = input.u8();
    // Pointers are never any number.
    words[place(std::mem::offset_of!(noctule_endpoint_options, congestion))] = if asks & 1 == 0 { 0 } else { texts.any(input) as u64 };
    words[place(std::mem::offset_of!(noctule_endpoint_options, psk))] = if asks & 2 == 0 { 0 } else { texts.any(input) as u64 };
    let (start, count) = match asks & 12 {
        4 => {
            *list = vec![texts.key(input), texts.any(input)];
            (list.as_ptr() as u64, list.len() as u64)
        }
        8 => (8, 0),
        12 => (0, 1),
        _ => (0, 0),
    };
    words[place(std::mem::offset_of!(noctule_endpoint_options, authorised))] = start;
    words[place(std::mem::offset_of!(noctule_endpoint_options, authorised_count))] = count;
    Some(words)
}

pub(super) fn pointer<T>(words: &Option<Vec<u64>>) -> *const T {
    words.as_ref().map_or(null(), |words| words.as_ptr().cast())
}
