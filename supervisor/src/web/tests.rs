//! The API and the pages as a browser and the command line meet them.
