//! Errors, by the party at fault.

use std::borrow::Cow;
use std::ffi::CStr;
use std::fmt;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call, which changed nothing unless it says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Kind of failure.
    pub fault: Fault,
    /// Says what is at fault, its value, and what to do, in one line.
    pub message: Cow<'static, str>,
}

impl Error {
    /// A failure; `message` says what is at fault and with which value.
    #[cold]
    pub fn new(fault: Fault, message: impl Into<Cow<'static, str>>) -> Self {
        Self { fault, message: message.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fault.text(), self.message)
    }
}

impl std::error::Error for Error {}

macro_rules! faults {
    ($($variant:ident $code:literal $text:literal,)*) => {
        /// Kinds of failures. Their numbers are those of `mad.h`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(i32)]
        pub enum Fault {
            $(#[doc = concat!("It is this: ", $text, ".")] $variant = $code,)*
        }

        impl Fault {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// Meaning of the kind.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// [`Fault::text`] for C.
            pub(crate) const fn c_text(self) -> &'static CStr {
                let text = match self {
                    $(Self::$variant => CStr::from_bytes_with_nul(concat!($text, "\0").as_bytes()),)*
                };
                match text {
                    Ok(text) => text,
                    Err(_) => c"",
                }
            }
        }
    };
}

faults! {
    State 1 "not initialised, or finalised",
    Argument 2 "invalid argument",
    Rank 3 "no such process",
    Channel 4 "channel not open, or open already",
    Handle 5 "not the handle of an open message or channel",
    Open 6 "a message is open",
    Busy 7 "in use by another thread",
    Size 8 "packed with another length",
    Constraints 9 "packed with other constraints",
    Packets 10 "another number of packets was packed",
    Peer 11 "the peer is gone, or sent what no peer sends",
    Limit 12 "more than the library can count",
    System 13 "the job could not be joined or left",
}
