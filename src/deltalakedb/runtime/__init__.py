"""What every room may use: settings, signals, forks, lazy imports, argument checks, named steps."""
