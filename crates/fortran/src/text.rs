//! Texts: padded with blanks in Fortran, ended by a zero byte in C.

use std::ffi::{CString, c_char, c_int};
use std::{ptr, slice};

use crate::sentinel;
use binding::argument::Argument;

/// A text that C reads.
pub(crate) struct Text(CString);

impl Text {
    /// A text without the blanks at its end.
    pub(crate) unsafe fn take(text: *const u8, length: usize) -> Self {
        // SAFETY: Fortran passes a text of this length.
        Self(c_string(trimmed(unsafe { bytes(text, length) })))
    }

    /// A text of an info object, without the blanks at either end (MPI-5.0 chapter 10).
    pub(crate) unsafe fn of_info(text: *const u8, length: usize) -> Self {
        // SAFETY: Fortran passes a text of this length.
        let text = trimmed(unsafe { bytes(text, length) });
        let blanks = text.iter().take_while(|byte| **byte == b' ').count();
        Self(c_string(&text[blanks..]))
    }
}

impl Argument for Text {
    type C = *const c_char;

    fn c(&mut self) -> *const c_char {
        self.0.as_ptr()
    }
}

/// The bytes of a text. One without bytes may have any address.
unsafe fn bytes<'a>(text: *const u8, length: usize) -> &'a [u8] {
    // SAFETY: Fortran passes a text of this length.
    if length == 0 { &[] } else { unsafe { slice::from_raw_parts(text, length) } }
}

fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| *byte != b' ').map_or(0, |last| last + 1);
    &text[..end]
}

/// A C string of a text, up to its first zero byte.
fn c_string(text: &[u8]) -> CString {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    CString::new(&text[..end]).unwrap_or_default()
}

/// Room for a text that C writes.
pub(crate) struct TextResult {
    text: *mut u8,
    length: usize,
    room: Vec<u8>,
}

impl TextResult {
    /// Room for a text of at most as many bytes as C writes, with the zero byte at its end.
    pub(crate) fn take(text: *mut u8, length: usize, bytes: i64) -> Self {
        // A byte that begins no text tells whether C has written one.
        Self { text, length, room: vec![UNWRITTEN; bytes.max(1) as usize] }
    }
}

impl Argument for TextResult {
    type C = *mut c_char;

    fn c(&mut self) -> *mut c_char {
        self.room.as_mut_ptr().cast()
    }

    fn give(self) {
        if self.room[0] == UNWRITTEN || self.length == 0 {
            return;
        }
        let written = self.room.split(|byte| *byte == 0).next().unwrap_or_default();
        let written = &written[..written.len().min(self.length)];
        // SAFETY: Fortran passes room for a text of this length.
        let text = unsafe { slice::from_raw_parts_mut(self.text, self.length) };
        let (front, rest) = text.split_at_mut(written.len());
        front.copy_from_slice(written);
        rest.fill(b' ');
    }
}

const UNWRITTEN: u8 = 0xff;

/// Length of the room for a text, with a zero byte in C and without one in Fortran.
pub(crate) struct TextLength {
    variable: *mut c_int,
    bytes: c_int,
}

impl TextLength {
    pub(crate) unsafe fn take(variable: *mut c_int) -> Self {
        // SAFETY: Fortran passes the address of an integer.
        let length = unsafe { *variable };
        Self { variable, bytes: if length > 0 { length.saturating_add(1) } else { length } }
    }
}

impl Argument for TextLength {
    type C = *mut c_int;

    fn c(&mut self) -> *mut c_int {
        &mut self.bytes
    }

    fn give(self) {
        // SAFETY: Fortran passes the address of an integer.
        unsafe { *self.variable = (self.bytes - 1).max(0) };
    }
}

/// Texts that C reads as an array that ends with NULL.
pub(crate) struct Texts {
    /// Owns what the addresses lead to.
    _texts: Vec<CString>,
    addresses: Vec<*const c_char>,
}

impl Texts {
    /// Texts up to one of blanks alone, or none at all if they are `MPI_ARGV_NULL`.
    pub(crate) unsafe fn until_blank(texts: *const u8, length: usize) -> Option<Self> {
        // SAFETY: as the caller says.
        (!texts.is_null() && !sentinel::is_no_argv(texts))
            .then(|| unsafe { Self::strided(texts, length, length) })
    }

    /// Texts, as many as another argument says.
    pub(crate) unsafe fn counted(texts: *const u8, length: usize, number: c_int) -> Option<Self> {
        (!texts.is_null()).then(|| {
            Self::new((0..number.max(0) as usize).map(|i| {
                // SAFETY: Fortran passes as many texts of this length.
                c_string(trimmed(unsafe { bytes(texts.add(i * length), length) }))
            }))
        })
    }

    /// Texts at a distance from each other, up to one of blanks alone.
    unsafe fn strided(texts: *const u8, length: usize, distance: usize) -> Self {
        Self::new((0..).map_while(|i| {
            // SAFETY: Fortran passes texts of this length, and the last one is blank.
            let text = unsafe { bytes(texts.add(i * distance), length) };
            let text = trimmed(text);
            (!text.is_empty()).then(|| c_string(text))
        }))
    }

    fn new(texts: impl Iterator<Item = CString>) -> Self {
        let texts: Vec<CString> = texts.collect();
        let addresses = texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Self { _texts: texts, addresses }
    }
}

impl Argument for Texts {
    type C = *mut *mut c_char;

    fn c(&mut self) -> *mut *mut c_char {
        self.addresses.as_mut_ptr().cast()
    }
}

/// Arguments of several programs: one row of a Fortran array for each.
pub(crate) struct TextRows {
    /// Owns what the addresses lead to.
    _rows: Vec<Texts>,
    addresses: Vec<*const *const c_char>,
}

impl TextRows {
    pub(crate) unsafe fn take(texts: *const u8, length: usize, rows: c_int) -> Option<Self> {
        if texts.is_null() || sentinel::is_no_argv(texts) {
            return None;
        }
        let number = rows.max(0) as usize;
        let rows: Vec<Texts> = (0..number)
            // SAFETY: Fortran passes an array of as many rows, which lies in the order of its columns.
            .map(|row| unsafe { Texts::strided(texts.add(row * length), length, number * length) })
            .collect();
        let addresses = rows.iter().map(|row| row.addresses.as_ptr()).collect();
        Some(Self { _rows: rows, addresses })
    }
}

impl Argument for TextRows {
    type C = *mut *mut *mut c_char;

    fn c(&mut self) -> *mut *mut *mut c_char {
        self.addresses.as_mut_ptr().cast()
    }
}
