"""`python -m rmqcli` is `rmq`."""

from rmqcli.cli.main import main

if __name__ == "__main__":
    main()
