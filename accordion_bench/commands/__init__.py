"""The commands of accordion-bench, one a file, each with `main(arguments) -> exit code`."""
