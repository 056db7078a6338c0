//! Pages of lists that fit into memory.
//!
//! The API server limits a page by the number of its objects, and anyone who writes the objects decides how large they
//! are: 1.5 MB each, by the limit of etcd. So a page is read up to [`MAX_PAGE_BYTES`]. One that is longer is dropped as
//! soon as that is known, and requested again with a quarter of its objects; a page of one object is read whatever its
//! size is. The number is remembered for each list, and doubled after a small page, so that a long list of large
//! objects costs few pages that are dropped.

use std::collections::BTreeMap;

use http::Uri;
use http::uri::PathAndQuery;
use parking_lot::Mutex;

/// The longest page, in bytes: 500 copies of a Secret, or 50 Nodes, are less than 1 MiB.
const MAX_PAGE_BYTES: usize = 4 << 20;

/// A page that is shorter than this is small.
const SMALL_PAGE_BYTES: usize = MAX_PAGE_BYTES / 8;

/// The lists that are read in smaller pages than they ask for.
#[derive(Debug, Default)]
pub(super) struct Pages(Mutex<BTreeMap<String, u32>>);

/// The size of the next page of a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    /// The path and the query of the list, without place and size of the page.
    list: String,
    /// The size that the caller asks for.
    asked: u32,
    /// Objects in the page.
    objects: u32,
}

impl Pages {
    /// The page that is asked for; None if it is no page of a list.
    pub(super) fn page(&self, uri: &Uri) -> Option<Page> {
        let query = uri.query()?;
        let asked = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("limit="))?
            .parse::<u32>()
            .ok()
            .filter(|asked| *asked > 0)?;
        let of_list = |pair: &&str| !pair.starts_with("limit=") && !pair.starts_with("continue=");
        let selectors: Vec<&str> = query.split('&').filter(of_list).collect();
        let list = format!("{}?{}", uri.path(), selectors.join("&"));
        let objects = self.0.lock().get(&list).map_or(asked, |objects| asked.min(*objects));
        Some(Page { list, asked, objects })
    }

    /// The page had this many bytes.
    pub(super) fn read(&self, page: Page, bytes: usize) {
        if page.objects == page.asked || bytes >= SMALL_PAGE_BYTES {
            return;
        }
        let objects = page.objects.saturating_mul(2);
        let mut lists = self.0.lock();
        if objects < page.asked {
            lists.insert(page.list, objects);
        } else {
            lists.remove(&page.list);
        }
    }

    /// The page is too long: a smaller one in its place.
    pub(super) fn smaller(&self, page: Page) -> Page {
        let objects = (page.objects / 4).max(1);
        self.0.lock().insert(page.list.clone(), objects);
        Page { objects, ..page }
    }
}

impl Page {
    /// The number of bytes that are read of it.
    pub(super) fn most(&self) -> usize {
        if self.objects > 1 { MAX_PAGE_BYTES } else { usize::MAX }
    }

    /// `uri` with the size of this page.
    pub(super) fn uri(&self, uri: &Uri) -> Uri {
        let pairs = uri.query().unwrap_or_default().split('&').map(|pair| {
            if pair.starts_with("limit=") {
                format!("limit={}", self.objects)
            } else {
                pair.to_owned()
            }
        });
        let query = pairs.collect::<Vec<_>>().join("&");
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(format!("{}?{query}", uri.path())).ok();
        Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str) -> Uri {
        text.parse().unwrap()
    }

    #[test]
    fn a_page_that_is_too_long_becomes_smaller_and_grows_again_when_the_objects_are_small() {
        let pages = Pages::default();
        let asked = uri("https://server/api/v1/secrets?labelSelector=a%3Db&limit=50&continue=x");
        let next = uri("https://server/api/v1/secrets?labelSelector=a%3Db&limit=50");
        let mut page = pages.page(&asked).unwrap();
        assert_eq!((page.objects, page.uri(&asked)), (50, asked.clone()));
        for objects in [12, 3, 1, 1] {
            assert!(page.objects == 1 || page.most() == MAX_PAGE_BYTES);
            page = pages.smaller(page);
            assert_eq!(page.objects, objects);
        }
        assert_eq!(page.most(), usize::MAX);
        assert_eq!(
            page.uri(&asked).to_string(),
            "https://server/api/v1/secrets?labelSelector=a%3Db&limit=1&continue=x"
        );
        pages.read(page, SMALL_PAGE_BYTES);
        assert_eq!(pages.page(&next).unwrap().objects, 1, "its objects are large");
        for objects in [2, 4, 8, 16, 32, 50, 50] {
            pages.read(pages.page(&next).unwrap(), SMALL_PAGE_BYTES - 1);
            assert_eq!(pages.page(&asked).unwrap().objects, objects);
        }
        assert!(pages.0.lock().is_empty());
    }

    #[test]
    fn lists_are_told_apart_and_other_requests_are_no_pages() {
        let pages = Pages::default();
        let large = uri("/api/v1/secrets?limit=50&labelSelector=a");
        pages.smaller(pages.page(&large).unwrap());
        assert_eq!(pages.page(&large).unwrap().objects, 12);
        for other in [
            "/api/v1/secrets?limit=50&labelSelector=b",
            "/api/v1/pods?limit=50&labelSelector=a",
        ] {
            assert_eq!(pages.page(&uri(other)).unwrap().objects, 50, "{other}");
        }
        for none in [
            "/api/v1/secrets",
            "/api/v1/secrets?labelSelector=a",
            "/api/v1/secrets?limit=0",
        ] {
            assert_eq!(pages.page(&uri(none)), None, "{none}");
        }
    }
}
