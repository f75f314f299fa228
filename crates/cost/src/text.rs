//! Costs as text, one line each.

/// Reason why a text is not a cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CostError {
    /// The first word is unknown, or of a later version.
    #[error("no cost of this version")]
    Version,
    /// The number of fields is wrong.
    #[error("{found} fields where {expected} belong")]
    Fields {
        /// Required number of fields.
        expected: usize,
        /// Number of fields found.
        found: usize,
    },
    /// A field is not a number, or out of range.
    #[error("field {field} is no number in its range")]
    Number {
        /// Position, counted from 1.
        field: usize,
    },
    /// A busy time is lower than that of a shorter frame.
    #[error("field {field} is less than the one before")]
    Falling {
        /// Position, counted from 1.
        field: usize,
    },
}

/// Parses exactly `N` numbers after `word`, separated by single spaces.
pub(crate) fn fields<const N: usize>(
    text: &str,
    word: &str,
    mut read: impl FnMut(usize, &str) -> Option<u64>,
) -> Result<[u64; N], CostError> {
    let mut parts = text.split(' ');
    if parts.next() != Some(word) {
        return Err(CostError::Version);
    }
    let found = parts.clone().count();
    if found != N {
        return Err(CostError::Fields { expected: N, found });
    }
    let mut values = [0; N];
    for (at, part) in parts.enumerate() {
        values[at] = read(at, part).ok_or(CostError::Number { field: at + 1 })?;
    }
    Ok(values)
}

/// Parses digits without sign or leading zeros, so that every value has one text.
pub(crate) fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let plain = text == "0" || !text.starts_with('0');
    (digits && plain).then(|| text.parse().ok())?
}
