//! Names and short texts.

use tidewaiter_api::values::printable;

use super::{pattern_value, text_value};

const SLUG: &str = "must be 1 to 63 ASCII letters, digits, '_', '-' and '.', and begin with a letter or digit";

text_value! {
    /// A name: 1 to 128 characters of any alphabet.
    #[schema(min_length = 1, max_length = 128, pattern = r"^[^\s\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]([^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]*[^\s\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff])?$", examples("Production"))]
    DisplayName, "name", display_name,
    "must be 1 to 128 visible characters, without spaces around them"
}
text_value! {
    /// A description: at most 1,024 characters of any alphabet, on one line.
    #[derive(Default)]
    #[schema(max_length = 1024, pattern = r"^[^\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]*$", examples("Who is awake"))]
    Description, "description", description,
    "must be at most 1024 visible characters on one line"
}
pattern_value! {
    /// An e-mail address. Only its format is checked.
    Email, "e-mail address",
    r"^[!#-'*+\-./0-9=?A-Z^-~]{1,64}@[!#-'*+\-/0-9=?A-Z^-~]+(\.[!#-'*+\-/0-9=?A-Z^-~]+)*$",
    most 254, example "alice@example.com",
    "must be an e-mail address of at most 254 ASCII characters, for example alice@example.com"
}
pattern_value! {
    /// A telephone number.
    Phone, "telephone number",
    r"^[0-9 +\-()./x]*[0-9][0-9 +\-()./x]*$",
    most 32, example "+1 555 0100",
    "must be 1 to 32 digits, spaces and \"+-()./x\", for example +1 555 0100"
}
pattern_value! {
    /// An identifier: the name of a provider or an engine, the type or implementation of a plugin.
    Slug, "identifier",
    r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$",
    most 63, example "digital_ocean",
    SLUG
}
pattern_value! {
    /// The id of an account at a provider of OpenID Connect (OpenID Connect Core 1.0, section 2: `sub`).
    Subject, "subject",
    r"^[!-~]([ -~]{0,253}[!-~])?$",
    most 255, example "248289761001",
    "must be 1 to 255 printable ASCII characters without a space at either end"
}
pattern_value! {
    /// A plugin of the same cluster: its type, or its type and implementation.
    PluginReference, "plugin reference",
    r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,62}(/[A-Za-z0-9][A-Za-z0-9_.\-]{0,62})?$",
    most 127, example "metrics/prometheus",
    "must be TYPE or TYPE/IMPLEMENTATION of a plugin, for example metrics/prometheus"
}
pattern_value! {
    /// A signature of minisign, detached: its four lines.
    DetachedSignature, "signature",
    r"^untrusted comment: [\t -~]{0,1000}\n[A-Za-z0-9+/]{99}=\ntrusted comment: [\t -~]{0,1000}\n[A-Za-z0-9+/]{86}==\n?$",
    most 2400, example "untrusted comment: signature from a key\nRUQf6LRCGA9i559r3g7V1qNyJDApGip8MfqcadIgT9CuhV3EMhHoN1mGTkUidF/z7SrlQgXdy8ofjb7bNJJylDOocrCo8KLzZwo=\ntrusted comment: timestamp:1790000000\tfile:plugin-metrics-1.0.0\ny/rUw2y8/hOUYjZU71eHp/Wo1KZ40fGy2VJEDl34XMJM+TX48Ss/17u3IvIfbVR1FkZZSNCisQbuQY+bHwhEBg==",
    "must be the four lines of a signature of minisign"
}
pattern_value! {
    /// The name of a credential: `username`, `password`, …
    CredentialName, "name of a credential",
    r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$",
    most 63, example "username",
    SLUG
}
pattern_value! {
    /// The name of a namespace: a DNS label (RFC 1123).
    Namespace, "namespace",
    r"^[a-z0-9]([a-z0-9\-]*[a-z0-9])?$",
    most 63, example "kube-system",
    "must be 1 to 63 lower-case letters, digits and '-', beginning and ending with a letter or digit"
}
pattern_value! {
    /// The type of a status, for example `RUNNING`.
    StatusType, "type of a status",
    r"^[A-Za-z0-9_]+$",
    most 63, example "RUNNING",
    "must be 1 to 63 ASCII letters, digits and '_', for example RUNNING"
}
pattern_value! {
    /// How an autoscaler chooses the nodes that it adds or removes, for example `random`, the default.
    StrategyName, "scaling strategy",
    r"^[A-Za-z0-9][A-Za-z0-9_.\-]*$",
    most 63, example "random",
    SLUG
}

pattern_value! {
    /// The number of a change in the cloud, as the header `Tidewaiter-Change` has it.
    ChangeNumber, "number of a change",
    r"^(0|[1-9][0-9]*)$",
    most 18, example "4711",
    "must be a whole number of at most 18 digits"
}

impl ChangeNumber {
    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.parse().unwrap_or_default()
    }
}

impl Description {
    /// Returns the text as a description: without what is not readable, and cut off where it is too long.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let shown = printable(text);
        let plain = shown.chars().filter(|c| readable(c.encode_utf8(&mut [0; 4])));
        Self(plain.take(1024).collect())
    }
}

/// The type that is shown if no status was reported.
impl Default for StatusType {
    fn default() -> Self {
        Self("UNKNOWN".to_owned())
    }
}

impl Default for StrategyName {
    fn default() -> Self {
        Self("random".to_owned())
    }
}

/// Excludes control characters, and characters that are invisible, break a line, or change the text direction.
fn readable(text: &str) -> bool {
    !text.chars().any(|c| {
        c.is_control()
            || matches!(c,
                '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}' | '\u{e0000}'..='\u{e0fff}')
    })
}

fn display_name(text: &str) -> bool {
    let length = text.chars().count();
    (1..=128).contains(&length) && text.trim() == text && readable(text)
}

fn description(text: &str) -> bool {
    text.chars().count() <= 1024 && readable(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_values;

    #[test]
    fn people_may_have_names_in_their_own_alphabet() {
        assert_values! { DisplayName:
            ["a", "Zo\u{eb} O'Neill", "\u{674e}\u{56db}", "e\u{301}", "\u{e4}".repeat(128)]
            not ["", " a", "a ", "a\nb", "a\tb", "\u{1b}[31m", "\u{202e}a", "a\u{200b}b", "\u{85}", "a".repeat(129)]
        }
        assert_values! { Description:
            ["", " two words ", "\u{e4}".repeat(1024)] not ["a\nb", "\0", "\u{2028}", "a".repeat(1025)]
        }
    }

    #[test]
    fn any_text_can_be_described() {
        let text = Description::of(&format!("a\u{1b}[31m\nb\u{202e}\u{fffd}{}", "c".repeat(2000)));
        assert!(
            !text.as_str().contains(['\u{1b}', '\n', '\u{202e}', '\u{fffd}']),
            "{text}"
        );
        assert_eq!(text.as_str().chars().count(), 1024);
        assert_eq!(text.as_str().parse::<Description>().unwrap(), text);
        assert_values! { ChangeNumber: ["0", "4711", "9".repeat(18)] not ["", "-1", "01", "1.5", "9".repeat(19)] }
    }

    #[test]
    fn references_to_plugins_and_signatures() {
        assert_values! { PluginReference:
            ["CNI", "metrics/prometheus"] not ["", "/", "a/", "/a", "a/b/c", "a b", "a".repeat(64)]
        }
        let (short, long) = ("A".repeat(86), "A".repeat(99));
        let lines = [
            "untrusted comment: a".to_owned(),
            format!("{long}="),
            "trusted comment: timestamp:1".to_owned(),
            format!("{short}=="),
        ];
        let good = lines.join("\n");
        assert_values! { DetachedSignature:
            [good, format!("{good}\n")]
            not ["", "\n\n\n", lines[..3].join("\n"), format!("{good}\n\n"), good.replace('A', "\u{e4}"), good.replace('\n', "\r\n")]
        }
        for number in 0..4 {
            let mut broken = lines.clone();
            broken[number] = "a".to_owned();
            assert_values! { DetachedSignature: [] not [broken.join("\n")] }
        }
    }

    #[test]
    fn email_addresses() {
        assert_values! { Email:
            ["a@b", "alice+dev@example.com"]
            not ["", "a", "@b", "a@", "a@b@c", "a@b..c", "a b@c", "a@b\n", "<a@b>", "\u{e4}@b.c", format!("a@{}", "b".repeat(253))]
        }
    }

    #[test]
    fn words_that_programs_compare() {
        assert_values! { Slug:
            ["CNI", "cloud_controller_manager", "digital-ocean", "v1.2", "a".repeat(63)]
            not ["", "_a", "-a", "..", "a/b", "a b", "a\n", "\u{430}", "a".repeat(64)]
        }
        assert_values! { Namespace:
            ["a", "kube-system", "0", "a".repeat(63)]
            not ["", "A", "-a", "a-", "a.b", "a_b", "a/b", "a\n", "\u{e4}", "a".repeat(64)]
        }
        assert_values! { StatusType:
            ["RUNNING", "a_1"] not ["", "A B", "A-B", "\u{c4}", "A\n", "A".repeat(64)]
        }
    }

    #[test]
    fn telephone_numbers() {
        assert_values! { Phone:
            ["+1 (555) 01-00", "112"] not ["", "+", "call me", "1\n2", "\u{661}", "1".repeat(33)]
        }
    }
}
