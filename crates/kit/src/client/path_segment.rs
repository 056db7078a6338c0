//! Names in the paths of requests.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Everything but the unreserved characters of RFC 3986 and the colon of `system:node`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b':');

/// The name of an object, as kube's `Api` needs it: it puts names into paths as they are. The names of roles and their
/// bindings may have a `?`, `#` or space, and the request would be about another object.
#[must_use]
pub fn path_segment(name: &str) -> String {
    utf8_percent_encode(name, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_whatever_it_has() {
        for (name, segment) in [
            ("system:node-1.a_b~c", "system:node-1.a_b~c"),
            ("x?dryRun=All", "x%3FdryRun%3DAll"),
            ("x#y", "x%23y"),
            ("a b/c%2f", "a%20b%2Fc%252f"),
            ("\u{1b}[2J", "%1B%5B2J"),
        ] {
            assert_eq!(path_segment(name), segment);
        }
    }
}
