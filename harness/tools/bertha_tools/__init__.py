"""What reads the files of Bertha's training runs for people; nothing here is needed to train."""
