from torchyard.cli import main

main()
