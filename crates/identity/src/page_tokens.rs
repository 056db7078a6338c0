//! Follows the pages of one listing, and stops at the first page token that repeats: such a listing never ends.

use std::collections::HashSet;

/// The reason why a listing is not read further.
pub(crate) const ENDLESS: &str = "the pagination does not end";

/// The page tokens that one listing has returned so far.
#[derive(Debug)]
pub(crate) struct PageTokens {
    returned: HashSet<String>,
    max_pages: usize,
}

impl PageTokens {
    /// For a listing of at most `max_pages` pages.
    pub(crate) fn new(max_pages: usize) -> Self {
        Self {
            returned: HashSet::new(),
            max_pages,
        }
    }

    /// The token of the page to request next; `None` after the last page.
    ///
    /// # Errors
    /// [`ENDLESS`] if a token repeats or there are too many pages.
    pub(crate) fn next(&mut self, token: Option<String>) -> Result<Option<String>, &'static str> {
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            return Ok(None);
        };
        if !self.returned.insert(token.clone()) || self.returned.len() >= self.max_pages {
            return Err(ENDLESS);
        }
        Ok(Some(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_ends_with_its_last_page_a_repeated_token_or_the_limit() {
        let mut tokens = PageTokens::new(3);
        let mut next = |token: &str| tokens.next(Some(token.to_owned()));
        assert_eq!(next(""), Ok(None));
        assert_eq!(next("a"), Ok(Some("a".to_owned())));
        assert_eq!(next("b"), Ok(Some("b".to_owned())));
        assert_eq!(next("a"), Err(ENDLESS));
        assert_eq!(next("c"), Err(ENDLESS));
        assert_eq!(tokens.next(None), Ok(None));
    }
}
