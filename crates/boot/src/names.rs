//! Names of ports that the launcher serves (PMI-1's `publish_name` and its siblings).

use zeroize::Zeroizing;

/// A question about the name of a service.
#[derive(Clone, Copy, Debug)]
pub enum NameQuestion<'a> {
    /// Publish the name with this port.
    Publish(&'a str, &'a str),
    /// Find the port that has the name.
    LookUp(&'a str),
    /// Withdraw the name, which has this port.
    Withdraw(&'a str, &'a str),
}

/// Answer of a launcher.
#[derive(Debug, PartialEq, Eq)]
pub enum NameAnswer {
    /// This process has no launcher that serves names.
    NotServed,
    /// The name is taken, unknown, or has another port.
    Refused,
    /// It is done; of a question for a port, this is it.
    Done(Zeroizing<String>),
}

impl NameQuestion<'_> {
    /// Returns the line, and the command of the answer.
    pub(crate) fn line(self) -> (Zeroizing<String>, &'static str) {
        let with_port = |command, service: &str, port: &str| {
            let port = Zeroizing::new(escaped(port));
            Zeroizing::new(format!("cmd={command} service={} port={}", escaped(service), *port))
        };
        match self {
            Self::Publish(service, port) => {
                (with_port(PUBLISH_NAME, service, port), "publish_result")
            }
            Self::Withdraw(service, port) => {
                (with_port(UNPUBLISH_NAME, service, port), "unpublish_result")
            }
            Self::LookUp(service) => {
                let line = format!("cmd={LOOKUP_NAME} service={}", escaped(service));
                (Zeroizing::new(line), "lookup_result")
            }
        }
    }
}

/// Returns a text as one word, in which bytes other than visible ones of ASCII, and `%`, are `%` and two digits.
fn escaped(text: &str) -> String {
    let mut word = String::with_capacity(3 * text.len());
    for byte in text.bytes() {
        match byte {
            b'%' => word.push_str("%25"),
            0x21..=0x7e => word.push(char::from(byte)),
            _ => word.push_str(&format!("%{byte:02x}")),
        }
    }
    word
}

/// Decodes a word; none if it was not made so.
pub(crate) fn unescaped(word: &str) -> Option<Zeroizing<String>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(word.len()));
    let mut rest = word.as_bytes();
    while let Some((&byte, more)) = rest.split_first() {
        let (byte, more) = match byte {
            b'%' => {
                let (digits, behind) = more.split_first_chunk::<2>()?;
                let digits = std::str::from_utf8(digits).ok()?;
                (u8::from_str_radix(digits, 16).ok()?, behind)
            }
            byte => (byte, more),
        };
        bytes.push(byte);
        rest = more;
    }
    std::str::from_utf8(&bytes).ok().map(|text| Zeroizing::new(text.to_owned()))
}

/// Commands of PMI-1.
pub const PUBLISH_NAME: &str = "publish_name";
/// See [`PUBLISH_NAME`].
pub const LOOKUP_NAME: &str = "lookup_name";
/// See [`PUBLISH_NAME`].
pub const UNPUBLISH_NAME: &str = "unpublish_name";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_a_word() {
        for text in ["", "ocean", "sea ice", "100 %=ä\t\n"] {
            let word = escaped(text);
            assert!(word.bytes().all(|byte| byte.is_ascii_graphic()), "{word}");
            assert_eq!(unescaped(&word).unwrap().as_str(), text);
        }
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(unescaped(wrong), None);
        }
        let (line, answer) = NameQuestion::Publish("a b", "p").line();
        assert_eq!((&**line, answer), ("cmd=publish_name service=a%20b port=p", "publish_result"));
    }
}
