"""The dashboards as code: a module per board, built from `panels`, `queries` and `board`."""
