//! Errors as MPI sees them: a class, and one line that names what is wrong.

use std::borrow::Cow;
use std::fmt;
use std::ops::{Deref, DerefMut};

use handles::{Handle, Kind, TableError};

/// The result of an MPI operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure of an MPI call; one word, as calls that succeed pass results about as well.
///
/// The `abi` crate raises it on the call's communicator, window or file, unless `on` names another communicator or
/// window, for instance that of a request.
#[derive(Clone, Debug)]
pub struct Error(Box<Failure>);

/// Details of a failure.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Class of the failure (MPI-5.0 §9.4).
    pub class: ErrorClass,
    /// Says which argument or peer is at fault, its value, and what to do; no function name.
    pub message: Cow<'static, str>,
    /// The communicator or window whose error handler decides, where it is not the call's own argument.
    pub on: Option<Handle>,
    /// The code of a user-defined error (`MPI_Add_error_code`) to be reported instead of the class.
    pub code: Option<i32>,
}

impl Error {
    /// A failure of `class`; `message` says what is at fault and with which value.
    #[cold]
    pub fn new(class: ErrorClass, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Failure { class, message: message.into(), on: None, code: None }))
    }

    /// The same failure, to be raised on the communicator or window `handle`.
    #[must_use]
    pub fn on(mut self, handle: Handle) -> Self {
        self.on = Some(handle);
        self
    }

    /// The same failure, with the name of the argument at fault.
    #[cold]
    #[must_use]
    pub fn about(mut self, argument: impl fmt::Display) -> Self {
        self.message = format!("{argument}: {}", self.message).into();
        self
    }

    /// An `MPI_ERR_ARG`.
    #[cold]
    pub fn argument(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorClass::Arg, message)
    }
}

impl From<TableError> for Error {
    #[cold]
    fn from(error: TableError) -> Self {
        let class = match error {
            TableError::Full(_) => ErrorClass::NoMem,
            TableError::Unknown(kind, _) => match kind {
                Kind::Comm => ErrorClass::Comm,
                Kind::Group => ErrorClass::Group,
                Kind::Datatype => ErrorClass::Type,
                Kind::Op => ErrorClass::Op,
                Kind::Request | Kind::Message | Kind::Send | Kind::Receive | Kind::Done => {
                    ErrorClass::Request
                }
                Kind::Errhandler => ErrorClass::Errhandler,
                Kind::Info => ErrorClass::Info,
                Kind::Window => ErrorClass::Win,
                Kind::File => ErrorClass::File,
                Kind::Tool | Kind::Channel | Kind::MadMessage => ErrorClass::Arg,
            },
        };
        Self::new(class, error.to_string())
    }
}

impl Deref for Error {
    type Target = Failure;

    fn deref(&self) -> &Failure {
        &self.0
    }
}

impl DerefMut for Error {
    fn deref_mut(&mut self) -> &mut Failure {
        &mut self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class.name(), self.message)
    }
}

impl std::error::Error for Error {}

macro_rules! classes {
    ($($variant:ident $name:literal $text:literal,)*) => {
        /// The error classes of MPI-5.0 §9.4 and of `mpi-ext.h`. Their numbers belong to the ABI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorClass {
            $(#[doc = concat!("`", $name, "`: ", $text, ".")] $variant,)*
        }

        impl ErrorClass {
            /// All classes, in the order of the standard's table.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The constant's name, `MPI_ERR_…`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// Text of the class, for `MPI_Error_string`.
            pub const fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }
    };
}

classes! {
    Buffer "MPI_ERR_BUFFER" "invalid buffer pointer",
    Count "MPI_ERR_COUNT" "invalid count",
    Type "MPI_ERR_TYPE" "invalid datatype",
    Tag "MPI_ERR_TAG" "invalid tag",
    Comm "MPI_ERR_COMM" "invalid communicator",
    Rank "MPI_ERR_RANK" "invalid rank",
    Request "MPI_ERR_REQUEST" "invalid request",
    Root "MPI_ERR_ROOT" "invalid root",
    Group "MPI_ERR_GROUP" "invalid group",
    Op "MPI_ERR_OP" "invalid reduction operation",
    Topology "MPI_ERR_TOPOLOGY" "invalid topology",
    Dims "MPI_ERR_DIMS" "invalid dimensions",
    Arg "MPI_ERR_ARG" "invalid argument",
    Unknown "MPI_ERR_UNKNOWN" "unknown error",
    Truncate "MPI_ERR_TRUNCATE" "message longer than the receive buffer",
    Other "MPI_ERR_OTHER" "an error not in this list",
    Intern "MPI_ERR_INTERN" "internal error of the library",
    Pending "MPI_ERR_PENDING" "pending request",
    InStatus "MPI_ERR_IN_STATUS" "the error code is in the status",
    Access "MPI_ERR_ACCESS" "permission denied",
    Amode "MPI_ERR_AMODE" "invalid access mode",
    Assert "MPI_ERR_ASSERT" "invalid assertion",
    BadFile "MPI_ERR_BAD_FILE" "invalid file name",
    Base "MPI_ERR_BASE" "invalid base address",
    Conversion "MPI_ERR_CONVERSION" "error in a data conversion function",
    Disp "MPI_ERR_DISP" "invalid displacement",
    DupDatarep "MPI_ERR_DUP_DATAREP" "data representation already defined",
    FileExists "MPI_ERR_FILE_EXISTS" "file exists",
    FileInUse "MPI_ERR_FILE_IN_USE" "file in use by another process",
    File "MPI_ERR_FILE" "invalid file handle",
    InfoKey "MPI_ERR_INFO_KEY" "info key too long or empty",
    InfoNokey "MPI_ERR_INFO_NOKEY" "no such info key",
    InfoValue "MPI_ERR_INFO_VALUE" "info value too long",
    Info "MPI_ERR_INFO" "invalid info object",
    Io "MPI_ERR_IO" "input or output failed",
    Keyval "MPI_ERR_KEYVAL" "invalid attribute key",
    Locktype "MPI_ERR_LOCKTYPE" "invalid lock type",
    Name "MPI_ERR_NAME" "service name not published",
    NoMem "MPI_ERR_NO_MEM" "out of memory",
    NotSame "MPI_ERR_NOT_SAME" "collective argument differs between processes",
    NoSpace "MPI_ERR_NO_SPACE" "no space left",
    NoSuchFile "MPI_ERR_NO_SUCH_FILE" "no such file",
    Port "MPI_ERR_PORT" "invalid port name",
    ProcAborted "MPI_ERR_PROC_ABORTED" "a peer process has ended",
    Quota "MPI_ERR_QUOTA" "quota exceeded",
    ReadOnly "MPI_ERR_READ_ONLY" "read-only file or file system",
    RmaAttach "MPI_ERR_RMA_ATTACH" "memory cannot be attached",
    RmaConflict "MPI_ERR_RMA_CONFLICT" "conflicting accesses to a window",
    RmaFlavor "MPI_ERR_RMA_FLAVOR" "wrong window flavour",
    RmaRange "MPI_ERR_RMA_RANGE" "target memory outside the window",
    RmaShared "MPI_ERR_RMA_SHARED" "memory cannot be shared",
    RmaSync "MPI_ERR_RMA_SYNC" "wrong synchronisation of a window",
    Service "MPI_ERR_SERVICE" "invalid service name",
    Session "MPI_ERR_SESSION" "invalid session",
    Size "MPI_ERR_SIZE" "invalid size",
    Spawn "MPI_ERR_SPAWN" "processes could not be started",
    UnsupportedDatarep "MPI_ERR_UNSUPPORTED_DATAREP" "unsupported data representation",
    UnsupportedOperation "MPI_ERR_UNSUPPORTED_OPERATION" "unsupported operation",
    Win "MPI_ERR_WIN" "invalid window",
    ValueTooLarge "MPI_ERR_VALUE_TOO_LARGE" "value too large for the result's type",
    Errhandler "MPI_ERR_ERRHANDLER" "invalid error handler",
    Abi "MPI_ERR_ABI" "ABI mismatch",
    ProcFailedPending "MPIX_ERR_PROC_FAILED_PENDING" "a process that may be the sender has failed",
    Revoked "MPIX_ERR_REVOKED" "the communicator is revoked",
}
