//! Generated keys, which `ssh-keygen` reads as well.

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::process::Command;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, ECDSA_P521_SHA512_FIXED_SIGNING, EcdsaKeyPair,
    EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::*;

/// Of a key that was made for the tests; any odd number of 2048 bits is a modulus for a reader.
fn modulus(bits: usize) -> Vec<u8> {
    let mut modulus = vec![0xa5; bits / 8 + 1];
    modulus[0] = 0;
    modulus
}

fn blob<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut blob = Vec::new();
    for part in parts {
        blob.extend_from_slice(&u32::try_from(part.len()).unwrap().to_be_bytes());
        blob.extend_from_slice(part);
    }
    STANDARD.encode(blob)
}

/// `TYPE BASE64`.
fn key(kind: &str, parts: &[&[u8]]) -> (String, String) {
    let parts = std::iter::once(kind.as_bytes()).chain(parts.iter().copied());
    (kind.to_owned(), blob(parts))
}

struct Curve {
    name: &'static str,
    verifying: &'static EcdsaVerificationAlgorithm,
    signing: &'static EcdsaSigningAlgorithm,
    /// The bytes of a coordinate.
    bytes: usize,
}

static CURVES: [Curve; 3] = [
    Curve {
        name: "nistp256",
        verifying: &ECDSA_P256_SHA256_FIXED,
        signing: &ECDSA_P256_SHA256_FIXED_SIGNING,
        bytes: 32,
    },
    Curve {
        name: "nistp384",
        verifying: &ECDSA_P384_SHA384_FIXED,
        signing: &ECDSA_P384_SHA384_FIXED_SIGNING,
        bytes: 48,
    },
    Curve {
        name: "nistp521",
        verifying: &ECDSA_P521_SHA512_FIXED,
        signing: &ECDSA_P521_SHA512_FIXED_SIGNING,
        bytes: 66,
    },
];

impl Curve {
    fn key(&self, point: &[u8]) -> (String, String) {
        key(&format!("ecdsa-sha2-{}", self.name), &[self.name.as_bytes(), point])
    }

    /// The key of a security key, which has the first curve.
    fn security_key(point: &[u8]) -> (String, String) {
        let kind = "sk-ecdsa-sha2-nistp256@openssh.com";
        key(kind, &[b"nistp256", point, b"ssh:"])
    }

    fn point(&self) -> Vec<u8> {
        let pair = EcdsaKeyPair::generate(self.signing).unwrap();
        pair.public_key().as_ref().to_vec()
    }

    /// Points with an x of few bits: on the curve, and too small for OpenSSH.
    fn small_points(&self) -> impl Iterator<Item = Vec<u8>> {
        (1..32).filter_map(|x| {
            let mut compressed = vec![0; 1 + self.bytes];
            compressed[0] = 2;
            compressed[self.bytes] = x;
            let key = ParsedPublicKey::new(self.verifying, compressed).ok()?;
            let der: PublicKeyX509Der<'_> = key.as_der().ok()?;
            let der = der.as_ref();
            Some(der[der.len() - 1 - 2 * self.bytes..].to_vec())
        })
    }

    /// Encodings that OpenSSH does not accept as a point.
    fn wrong_points(&self) -> Vec<Vec<u8>> {
        let mut wrong: Vec<_> = self.small_points().collect();
        assert!(wrong.len() > 8, "{} has small points", self.name);
        let point = self.point();
        let (x, y) = (&point[1..=self.bytes], &point[1 + self.bytes..]);
        for form in [2, 3] {
            wrong.push([&[form][..], x].concat());
        }
        for form in [0, 1, 2, 3, 5, 6, 7, 0xff] {
            wrong.push([&[form][..], x, y].concat());
        }
        let zeros = vec![0; self.bytes];
        let ones = vec![0xff; self.bytes];
        for (x, y) in [
            (x, x),
            (y, x),
            (&*zeros, y),
            (x, &*zeros),
            (&*zeros, &*zeros),
            (&*ones, y),
            (x, &*ones),
        ] {
            wrong.push([&[4][..], x, y].concat());
        }
        wrong.extend([
            vec![],
            vec![0],
            vec![4],
            point[..point.len() - 1].to_vec(),
            [&point[..], &[0]].concat(),
        ]);
        for bit in 0..48 {
            let mut off = self.point();
            let last = off.len() - 1;
            off[last - bit % self.bytes] ^= 1 << (bit % 8);
            wrong.push(off);
        }
        wrong
    }
}

/// Keys of each type, as `TYPE` and `BASE64`.
fn good_keys() -> Vec<(String, String)> {
    let ed25519 = Ed25519KeyPair::generate().unwrap();
    let ed25519 = ed25519.public_key().as_ref();
    let mut keys = vec![
        key("ssh-ed25519", &[ed25519]),
        key("sk-ssh-ed25519@openssh.com", &[ed25519, b"ssh:"]),
        Curve::security_key(&CURVES[0].point()),
    ];
    keys.extend(CURVES.iter().map(|curve| curve.key(&curve.point())));
    for exponent in [
        &[3][..],
        &[17],
        &[37],
        &[1, 0, 1],
        &[1, 0, 0, 0, 1],
        &[1, 0, 0, 0, 0, 0, 0, 0, 1],
    ] {
        keys.push(key("ssh-rsa", &[exponent, &modulus(2048)]));
    }
    keys.push(key("ssh-rsa", &[&[1, 0, 1], &modulus(4096)]));
    keys
}

/// Keys that OpenSSH cannot read, or that are weak, or with which nobody can log in.
fn bad_keys() -> Vec<(String, String)> {
    let mut keys = Vec::new();
    for curve in &CURVES {
        keys.extend(curve.wrong_points().iter().map(|point| curve.key(point)));
        // The name of one curve and the point of another.
        let others = CURVES.iter().filter(|other| other.name != curve.name);
        keys.extend(others.map(|other| curve.key(&other.point())));
    }
    keys.extend(CURVES[0].wrong_points().iter().map(|point| Curve::security_key(point)));
    let exponents: [&[u8]; 5] = [&[], &[1], &[2], &[4], &[1, 0, 0]];
    keys.extend(exponents.map(|exponent| key("ssh-rsa", &[exponent, &modulus(2048)])));
    keys.push(key("ssh-rsa", &[&[1, 0, 0, 0, 0, 0, 0, 0, 1], &modulus(4096)]));
    keys.extend([512, 1024, 2040].map(|bits| key("ssh-rsa", &[&[1, 0, 1], &modulus(bits)])));
    let mut random = [0; 33];
    aws_lc_rs::rand::SecureRandom::fill(&SystemRandom::new(), &mut random).unwrap();
    for length in [0, 1, 31, 33] {
        keys.push(key("ssh-ed25519", &[&random[..length]]));
        keys.push(key("sk-ssh-ed25519@openssh.com", &[&random[..length], b"ssh:"]));
    }
    keys.push(key("sk-ssh-ed25519@openssh.com", &[&random[..32], b"ssh:\0x"]));
    keys.push(key("ssh-ed25519", &[&random[..32], b"more"]));
    keys.push(key("ssh-dss", &[&random, &random, &random, &random]));
    keys
}

/// The ways to write a line that everybody accepts: what is before the type, between the parts, and at the end, and the
/// comment behind its number.
fn spellings() -> Vec<[&'static str; 4]> {
    let mut all = Vec::new();
    for between in [" ", "  ", "\t", " \t "] {
        for end in ["", " ", "\r", "\t\r"] {
            for comment in [
                "",
                " alice@example.com",
                " J\u{fc}rgen",
                " Ju\u{308}rgen",
                " \u{6771}\u{4eac}",
                "\ttab  two \"\\'",
            ] {
                all.push([if end == " " { " \t" } else { "" }, between, end, comment]);
            }
        }
    }
    all
}

/// The fingerprint that `ssh-keygen` has for each line that it can read, by the number with which its comment begins.
fn fingerprints(lines: &[String]) -> BTreeMap<usize, String> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
    file.rewind().unwrap();
    let output = Command::new("ssh-keygen").args(["-l", "-f", "-"]).stdin(file).output();
    let output = output.expect("ssh-keygen runs: apt-get install openssh-client");
    let read = String::from_utf8_lossy(&output.stdout);
    let parse = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let fingerprint = words.next()?.to_owned();
        Some((words.next()?.parse().ok()?, fingerprint))
    };
    read.lines()
        .map(|line| parse(line).unwrap_or_else(|| panic!("{line}")))
        .collect()
}

#[test]
fn a_key_is_what_ssh_keygen_reads() {
    let (good, bad) = (good_keys(), bad_keys());
    let mut lines = Vec::new();
    for [before, between, end, comment] in spellings() {
        for (kind, data) in &good {
            let number = lines.len();
            lines.push(format!("{before}{kind}{between}{data}{between}{number}{comment}{end}"));
        }
    }
    let accepted = lines.len();
    for (kind, data) in &bad {
        lines.push(format!("{kind} {data} {}", lines.len()));
    }
    assert!(
        accepted > 1000 && lines.len() - accepted > 300,
        "{accepted} {}",
        lines.len()
    );
    let read = fingerprints(&lines);
    let refused = (accepted..lines.len()).filter(|number| !read.contains_key(number));
    assert!(refused.count() > 250, "ssh-keygen refuses what it cannot read");
    for (number, line) in lines.iter().enumerate() {
        let ours = SshKeyLine::parse(line);
        if number < accepted {
            let ours = ours.unwrap_or_else(|rule| panic!("{line:?}: {rule}"));
            assert_eq!(
                Some(ours.fingerprint()),
                read.get(&number).map(String::as_str),
                "{line:?}"
            );
            assert_eq!(ours.without_comment().split(' ').count(), 2, "{line:?}");
            assert_eq!(SshKeyLine::parse(ours.as_str()).as_ref(), Ok(&ours), "{line:?}");
        } else {
            assert!(
                ours.is_err(),
                "{line:?}, which ssh-keygen reads as {:?}",
                read.get(&number)
            );
        }
    }
}
