//! The command line, and the job's pass, which never is on it.

use std::fmt;

use clap::{Parser, ValueEnum};
use driver::Door;
use zeroize::Zeroizing;

use crate::network::Net;

/// Carries connections between the hosts of a site and others. The first line of standard input is the
/// job's pass: its number in 16 hexadecimal digits, a space, its secret in 64.
#[derive(Debug, Parser)]
#[command(name = "canele-gateway", version)]
pub struct Options {
    /// Where it is called, over TCP and UDP: the first port that is free, of one, of some
    /// (10.77.1.10:7000-7009), or of all where none is given; may be given several times
    #[arg(long, value_name = "ADDRESS[:PORTS]", required = true)]
    pub listen: Vec<Door>,
    /// Network of the site's hosts, to which it opens connections; may be given several times
    #[arg(long, value_name = "NETWORK")]
    pub allow: Vec<Net>,
    /// Network of other sites' gateways, which it may call; may be given several times
    #[arg(long, value_name = "NETWORK")]
    pub gateways: Vec<Net>,
    /// How other gateways are called
    #[arg(long, value_enum, default_value_t)]
    pub between: Between,
    /// End when standard input does
    #[arg(long)]
    pub until_eof: bool,
    /// Write an empty line each second, so that whoever has started it sees that it lives
    #[arg(long)]
    pub beat: bool,
    /// Give an account at the end of standard input, too
    #[arg(long)]
    pub account: bool,
}

/// How gateways call others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Between {
    /// Over TCP where the system has a congestion control that remembers (BBR), else over UDP; over the
    /// other where that does not lead
    #[default]
    Auto,
    /// Over TCP only
    Tcp,
    /// Over UDP, and over TCP where that does not lead
    Udp,
}

/// What proves that somebody belongs to a job.
#[derive(Clone)]
pub struct Pass {
    /// The job's number.
    pub job: u64,
    /// Its secret.
    pub secret: Zeroizing<[u8; 32]>,
}

/// Why a line is no pass; it is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the first line of standard input is no pass: the job's number in 16 hexadecimal digits, a space, \
     its secret in 64"
)]
pub struct PassError;

impl Pass {
    /// The pass in a line.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(line: &str) -> Result<Self, PassError> {
        let (job, secret) = line.trim_end().split_once(' ').ok_or(PassError)?;
        let job = u64::from_be_bytes(bytes_of(job)?);
        Ok(Self { job, secret: Zeroizing::new(bytes_of(secret)?) })
    }
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pass(…)")
    }
}

fn bytes_of<const N: usize>(text: &str) -> Result<[u8; N], PassError> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return Err(PassError);
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or(PassError);
        *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_a_number_and_a_secret() {
        let line = format!("00000000000000ff {}\n", "0a".repeat(32));
        let pass = Pass::parse(&line).unwrap();
        assert_eq!((pass.job, *pass.secret), (255, [10; 32]));
        assert_eq!(format!("{pass:?}"), "Pass(…)");
        let short = format!("ff {}", "0a".repeat(32));
        for wrong in ["", "x", &line.replace('a', "g"), &line.replace(' ', "  "), &short] {
            assert_eq!(Pass::parse(wrong).err(), Some(PassError), "{wrong}");
        }
    }
}
